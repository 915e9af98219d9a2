"""The real disk keeps the rules of `storage/files.py`, and the simulated one behaves like it."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import DirectoryLocked, LogDirectoryFailed
from storage.files import IOV_MAX, Disk, Files, parent
from tests.storage.simulated_disk import SimulatedDisk

FilesAndDirectory = tuple[Files, str]


def test_append_puts_buffers_of_any_kind_at_the_end(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    file = files.open(f"{directory}/a", create=True)
    assert file.append([b"one"]) == 0
    assert file.append([bytearray(b"two"), memoryview(b"-three-")[1:6], b""]) == 3
    assert file.size == 11
    assert file.read(0, 100) == b"onetwothree"
    file.close()
    assert files.read(f"{directory}/a") == b"onetwothree"
    assert files.size(f"{directory}/a") == 11


def test_append_takes_more_buffers_than_one_system_call(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    file = files.open(f"{directory}/a", create=True)
    buffers = [b"%06d" % number for number in range(2 * IOV_MAX + 7)]
    assert file.append(buffers) == 0
    assert file.read(0, file.size) == b"".join(buffers)
    file.close()


def test_a_reopened_file_goes_on_at_its_end(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    files.open(f"{directory}/a", create=True).append([b"before"])
    file = files.open(f"{directory}/a")
    assert file.append([b" after"]) == 6
    assert file.read(0, 100) == b"before after"


def test_reads_are_short_only_at_the_end(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    file = files.open(f"{directory}/a", create=True)
    file.append([b"0123456789"])
    assert [file.read(2, 3), file.read(8, 5), file.read(10, 5), file.read(99, 5)] == [b"234", b"89", b"", b""]


def test_truncate_cuts_and_appends_go_on_there(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    file = files.open(f"{directory}/a", create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.append([b"x"]) == 4
    assert file.read(0, 10) == b"0123x"
    with pytest.raises(ValueError, match="cannot be cut to 6"):
        file.truncate(6)


def test_a_file_opened_for_reading_refuses_to_change(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    files.open(f"{directory}/a", create=True).append([b"abc"])
    file = files.open(f"{directory}/a", read_only=True)
    assert file.read(0, 3) == b"abc"
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.append([b"d"])
    assert files.read(f"{directory}/a") == b"abc"


def test_a_closed_file_refuses_everything(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    file = files.open(f"{directory}/a", create=True)
    file.close()
    file.close()
    other = files.open(f"{directory}/b", create=True)  # may get the same descriptor
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.append([b"d"])
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        file.read(0, 1)
    with pytest.raises(ValueError, match="is closed"):
        file.sync()
    assert other.size == 0
    assert files.read(f"{directory}/b") == b""


def test_replace_gives_new_contents_and_leaves_nothing_else(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    files.replace(f"{directory}/a", b"a long first version")
    files.replace(f"{directory}/a", memoryview(b"short"))
    assert files.read(f"{directory}/a") == b"short"
    assert files.list(directory) == ["a"]


def test_names_come_and_go(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    files.make_dir(f"{directory}/x/y")
    files.make_dir(f"{directory}/x")
    files.replace(f"{directory}/x/y/file", b"1")
    files.rename(f"{directory}/x/y", f"{directory}/x/z")
    files.replace(f"{directory}/x/aside", b"2")
    assert files.list(f"{directory}/x") == ["aside", "z"]
    assert files.read(f"{directory}/x/z/file") == b"1"
    assert (files.is_dir(f"{directory}/x"), files.is_dir(f"{directory}/x/aside")) == (True, False)
    assert (files.exists(f"{directory}/x/z"), files.exists(f"{directory}/x/y/file")) == (True, False)
    files.remove(f"{directory}/x/aside")
    files.sync_dir(f"{directory}/x")
    files.remove_tree(f"{directory}/x")
    files.remove_tree(f"{directory}/x")
    assert files.list(directory) == []


def test_what_is_missing_is_an_error(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    operations: list[Callable[[str], Any]] = [
        files.open,
        files.read,
        files.size,
        files.list,
        files.remove,
        files.sync_dir,
        files.modified_ms,
        lambda path: files.rename(path, f"{directory}/other"),
        lambda path: files.replace(f"{path}/below", b""),
    ]
    for operation in operations:
        with pytest.raises(FileNotFoundError):
            operation(f"{directory}/missing")
    assert files.list(directory) == []


def test_an_open_file_survives_renaming_and_removal(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    file = files.open(f"{directory}/a", create=True)
    files.rename(f"{directory}/a", f"{directory}/b")
    file.append([b"abc"])
    assert files.read(f"{directory}/b") == b"abc"
    files.remove(f"{directory}/b")
    assert file.read(0, 3) == b"abc"


def test_modification_times_can_be_set(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    files.replace(f"{directory}/a", b"")
    files.set_modified_ms(f"{directory}/a", 1_700_000_000_123)
    assert files.modified_ms(f"{directory}/a") == 1_700_000_000_123


def test_a_lock_is_held_once(files_and_directory: FilesAndDirectory) -> None:
    files, directory = files_and_directory
    lock = files.lock(f"{directory}/.lock")
    for _ in range(2):
        with pytest.raises(DirectoryLocked, match=r"/\.lock: this process|/\.lock: another process"):
            files.lock(f"{directory}/.lock")
    lock.release()
    lock.release()
    files.lock(f"{directory}/.lock").release()
    assert files.exists(f"{directory}/.lock")


def test_a_lock_keeps_other_processes_out(tmp_path: Path) -> None:
    program = f"""if True:
        from storage.errors import DirectoryLocked
        from storage.files import Disk
        try:
            Disk().lock({str(tmp_path / ".lock")!r})
            print("free")
        except DirectoryLocked as error:
            print("held", error.code.name)
    """

    def ask() -> str:
        command = [sys.executable, "-c", program]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=os.getcwd()).stdout

    lock = Disk().lock(str(tmp_path / ".lock"))
    assert ask() == "held KAFKA_STORAGE_ERROR\n"
    lock.release()
    assert ask() == "free\n"
    # That process is gone without a release, and its lock with it.
    assert ask() == "free\n"


def test_existence_is_not_denied_because_the_disk_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENAMETOOLONG)):
        Disk().exists(str(tmp_path / ("x" * 5000)))
    simulated = SimulatedDisk()
    simulated.fail(errno.EIO, "stat")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        simulated.exists("/a")


def test_permissions_are_left_to_the_umask(tmp_path: Path) -> None:
    """Like Kafka's: files 0666, directories 0777, less the umask."""
    before = os.umask(0o027)
    try:
        Disk().replace(str(tmp_path / "replaced"), b"")
        Disk().open(str(tmp_path / "opened"), create=True).close()
        Disk().make_dir(str(tmp_path / "made"))
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"replaced": 0o640, "opened": 0o640, "made": 0o750}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The kernel lets no file grow beyond: it writes what fits, then refuses."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("buffers", [[bytes(1000)], [bytes(10)] * 100, [bytes(1)] * (IOV_MAX + 500)])
def test_an_append_that_fails_midway_is_cut_off_again(tmp_path: Path, buffers: list[bytes]) -> None:
    file = Disk().open(str(tmp_path / "a"), create=True)
    file.append([b"x" * 500])
    with largest_file(900), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        file.append(buffers)
    assert file.size == (tmp_path / "a").stat().st_size == 500
    assert file.append([b"y"]) == 500
    assert (tmp_path / "a").read_bytes() == b"x" * 500 + b"y"


def test_short_writes_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal or a limit may end a write anywhere, also between buffers and in the middle of one."""
    write = os.pwritev

    def write_little(descriptor: int, buffers: list[bytes], position: int) -> int:
        return write(descriptor, [b"".join(buffers)[:7]], position)

    file = Disk().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwritev", write_little)
    buffers = [b"", b"0123456", b"789", b"", b"abcdefghijklmnopqrstuvwxyz", b"!"]
    file.append(buffers)
    assert (tmp_path / "a").read_bytes() == b"".join(buffers)
    assert file.size == 37


def test_short_reads_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.pread

    def read_little(descriptor: int, length: int, position: int) -> bytes:
        return read(descriptor, min(length, 7), position)

    file = Disk().open(str(tmp_path / "a"), create=True)
    file.append([bytes(range(100))])
    monkeypatch.setattr(os, "pread", read_little)
    assert file.read(3, 50) == bytes(range(3, 53))
    assert file.read(90, 50) == bytes(range(90, 100))


def test_a_failed_sync_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports a lost page once; a second fdatasync would say that all is well."""
    answers = iter([OSError(errno.EIO, os.strerror(errno.EIO)), None])

    def fail_once(descriptor: int) -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    file = Disk().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "fdatasync", fail_once)
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            file.sync()


def test_closing_during_a_sync_neither_waits_nor_disturbs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, closed = threading.Event(), threading.Event()
    descriptors: list[int] = []

    def slow_sync(descriptor: int) -> None:
        syncing.set()
        closed.wait(10)
        os.fstat(descriptor)  # EBADF if it had been closed
        descriptors.append(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    file = Disk().open(str(tmp_path / "a"), create=True)
    thread = threading.Thread(target=file.sync)
    thread.start()
    syncing.wait(10)
    file.close()
    closed.set()
    thread.join()
    assert len(descriptors) == 1
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptors[0])


def test_a_disk_that_need_not_be_durable_never_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise AssertionError("synced")

    monkeypatch.setattr(os, "fdatasync", refuse)
    monkeypatch.setattr(os, "fsync", refuse)
    disk = Disk(durable=False)
    disk.replace(str(tmp_path / "a"), b"data")
    disk.sync_dir(str(tmp_path))
    disk.open(str(tmp_path / "a")).sync()
    assert disk.read(str(tmp_path / "a")) == b"data"
    with pytest.raises(AssertionError, match="synced"):
        Disk().replace(str(tmp_path / "b"), b"data")


def test_replace_syncs_the_bytes_then_renames_then_syncs_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def recorded(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any) -> Any:
            what = os.readlink(f"/proc/self/fd/{arguments[0]}") if name != "replace" else arguments[1]
            calls.append(f"{name} {Path(what).relative_to(tmp_path)}")
            return original(*arguments)

        return call

    for name in ("fdatasync", "fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(name))
    Disk().replace(str(tmp_path / "a"), b"data")
    assert calls == ["fdatasync a.tmp", "replace a", "fsync ."]


def test_space_is_that_of_the_volume(tmp_path: Path) -> None:
    total, free = Disk().space(str(tmp_path))
    assert 0 < free <= total


def test_an_error_of_the_disk_names_the_file() -> None:
    error = LogDirectoryFailed.from_os_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "/log/a")
    assert str(error) == "/log/a: No space left on device"
    assert (error.errno, error.code.name) == (errno.ENOSPC, "KAFKA_STORAGE_ERROR")
    error = LogDirectoryFailed.from_os_error(OSError(errno.EIO, os.strerror(errno.EIO), "/log/b"), "/log/a")
    assert error.path == "/log/b"


def test_the_parent_of_a_path() -> None:
    assert [parent(path) for path in ("/a/b", "/a", "a/b", "a")] == ["/a", "/", "a", "."]


# Calls for files are made on files and calls for directories on directories; kernels differ in the rest.
FILES = st.sampled_from(["a", "b", "d/a", "d/b", "e/a"])
DIRECTORIES = st.sampled_from(["d", "e"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), FILES, st.binary(max_size=20)),
        st.tuples(st.just("truncate"), FILES, st.integers(0, 30)),
        st.tuples(st.just("read"), FILES, st.integers(0, 30), st.integers(0, 30)),
        st.tuples(st.just("replace"), FILES, st.binary(max_size=20)),
        st.tuples(st.just("rename"), FILES, FILES),
        st.tuples(st.just("remove"), FILES),
        st.tuples(st.just("size"), FILES),
        st.tuples(st.just("exists"), st.one_of(FILES, DIRECTORIES)),
        st.tuples(st.just("is_dir"), st.one_of(FILES, DIRECTORIES)),
        st.tuples(st.just("rename"), DIRECTORIES, DIRECTORIES),
        st.tuples(st.just("remove_tree"), DIRECTORIES),
        st.tuples(st.just("make_dir"), DIRECTORIES),
        st.tuples(st.just("list"), DIRECTORIES),
    ),
    max_size=40,
)


def perform(files: Files, root: str, step: tuple[Any, ...]) -> object:
    """What a step returns, or the error it raises."""
    kind, name, *rest = step
    path = f"{root}/{name}"
    try:
        if kind in ("append", "truncate", "read"):
            file = files.open(path, create=kind == "append")
            try:
                return getattr(file, kind)([rest[0]] if kind == "append" else rest[0], *rest[1:]), file.size
            finally:
                file.close()
        if kind == "rename":
            rest = [f"{root}/{rest[0]}"]
        return getattr(files, kind)(path, *rest)
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None), type(error)


@settings(max_examples=150)
@given(STEPS)
def test_the_simulated_disk_behaves_like_the_real_one(steps: list[tuple[Any, ...]]) -> None:
    simulated = SimulatedDisk()
    simulated.make_dir("/data")
    with tempfile.TemporaryDirectory() as root:
        for step in steps:
            assert perform(simulated, "/data", step) == perform(Disk(durable=False), root, step), step
        found = [path for path in Path(root).rglob("*") if path.is_file()]
        real = {f"/data/{path.relative_to(root)}": path.read_bytes() for path in found}
    assert simulated.files("/data") == real


def test_a_part_is_sent_to_a_socket_as_far_as_that_takes_it(tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    file = Disk().open(str(tmp_path / "a"), create=True)
    file.append([data])
    part = file.part(1000, 2_900_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        received = bytearray()
        while len(part):
            with suppress(BlockingIOError):
                assert part.send(ours.fileno()) > 0
            assert part.read() == data[2_901_000 - len(part) : 2_901_000]
            received += theirs.recv(200_000)
        ours.close()
        while more := theirs.recv(1 << 20):
            received += more
    assert received == data[1000:2_901_000]


def test_a_part_keeps_its_file_open_and_lets_it_go(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = Disk().open(path, create=True)
    file.append([b"contents"])
    part, other = file.part(0, 4), file.part(4, 4)
    file.close()
    Disk().remove(path)
    assert part.read() + other.read() == b"contents"
    opened = len(os.listdir("/proc/self/fd"))
    del part
    assert len(os.listdir("/proc/self/fd")) == opened
    del other
    assert len(os.listdir("/proc/self/fd")) == opened - 1
    with pytest.raises(ValueError, match="closed"):
        file.part(0, 1)


def test_a_part_of_what_was_cut_off_sends_nothing(tmp_path: Path) -> None:
    file = Disk().open(str(tmp_path / "a"), create=True)
    file.append([b"contents"])
    part = file.part(4, 4)
    file.truncate(4)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert part.send(ours.fileno()) == 0
