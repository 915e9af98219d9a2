"""Connections between brokers, and the order of what the controller says on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import pytest

from controller.requests import ControlRequest, replica_outcomes
from controller.state import TopicPartition
from kbroker.context import Context, Parked
from kbroker.controller_channel import ControllerChannel, Whereabouts
from kbroker.inter_broker import InterBroker
from kbroker.peer import Address, Peer, PeerLost
from kbroker.peers import Peers
from wire.api import ApiKey, api
from wire.api.api_versions import ApiVersion, ApiVersionsResponse
from wire.api.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from wire.api.fetch import FetchRequest
from wire.api.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from wire.api.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from wire.api.write_txn_markers import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from wire.codec import decode, encode
from wire.errors import ErrorCode, KafkaError
from wire.headers import decode_request_header, encode_response_header
from wire.schema import Versions


class OtherBroker:
    """Answers whatever is asked with what `answer` gives; hangs up where that is None, or says nothing.

    ApiVersions is answered with `serves`, and not counted. Like Kafka, it hangs up on other versions.
    """

    def __init__(
        self, answer: Callable[[int, Any], Any], serves: Mapping[int, Versions] | None = None
    ) -> None:
        self.answer = answer
        self.serves = {key: api(key).versions for key in REQUESTS} if serves is None else serves
        self.asked: list[Any] = []
        self.versions: list[int] = []
        self.connections = 0
        self.was_asked = asyncio.Event()
        self._serving: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> OtherBroker:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address: Address = self.server.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await asyncio.gather(*self._serving)
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.append(serving)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                request = await reader.readexactly(size)
                header, position = decode_request_header(request)
                key, version = header.request_api_key, header.request_api_version
                response: Any
                if key == ApiKey.API_VERSIONS:
                    response = self._api_versions()
                elif version not in self.serves[key]:
                    response = None
                else:
                    message: Any = decode(REQUESTS[key], memoryview(request)[position:], version)
                    self.asked.append(message)
                    self.versions.append(version)
                    self.was_asked.set()
                    response = self.answer(len(self.asked), message)
                if response is None:
                    break
                if response is SILENCE:
                    continue
                body = encode_response_header(key, version, header.correlation_id) + encode(response, version)
                writer.write(len(body).to_bytes(4) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[
                ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
                for key, versions in self.serves.items()
            ],
        )


SILENCE = object()
REQUESTS: dict[int, type] = {
    ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkersRequest,
    ApiKey.FETCH: FetchRequest,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
    ApiKey.UPDATE_METADATA: UpdateMetadataRequest,
}
GRANTED = ControlledShutdownResponse(error_code=0, remaining_partitions=[])
NOT_CONTROLLER = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER, remaining_partitions=[])


def peer_of(address: Callable[[], Address | None]) -> Peer:
    return Peer("us", "a test", asyncio.get_running_loop().create_connection, address)


def shutdown(broker_id: int) -> ControlledShutdownRequest:
    return ControlledShutdownRequest(broker_id=broker_id, broker_epoch=1)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def test_a_broken_connection_is_told_and_made_again() -> None:
    async def test() -> None:
        async with OtherBroker(lambda number, message: None if number == 1 else GRANTED) as other:
            peer = peer_of(lambda: other.address)
            with pytest.raises(PeerLost, match="hung up"):
                await peer.ask(shutdown(1), 3, 5)
            assert (await peer.ask(shutdown(2), 3, 5)).error_code == 0
            assert (await peer.ask(shutdown(3), 3, 5)).error_code == 0
            assert other.connections == 2
            peer.close()

    run(test())


def markers() -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=5,
        producer_epoch=1,
        transaction_result=True,
        topics=[],
        coordinator_epoch=0,
        transaction_version=2,
    )
    return WriteTxnMarkersRequest(markers=[marker])


NO_MARKERS = WriteTxnMarkersResponse(markers=[])
KAFKA_3_9: dict[int, Versions] = {ApiKey.WRITE_TXN_MARKERS: Versions(0, 1)}


def test_a_request_goes_in_the_highest_version_that_both_know() -> None:
    """Kafka 3.9 serves WriteTxnMarkers 0-1, and closes the connection for 2."""

    async def test() -> None:
        def answer(number: int, message: Any) -> Any:
            return GRANTED if number == 2 else NO_MARKERS

        async with OtherBroker(answer, {**KAFKA_3_9, ApiKey.CONTROLLED_SHUTDOWN: Versions(0, 9)}) as other:
            peer = peer_of(lambda: other.address)
            assert (await peer.ask(markers(), 2, 5)).markers == []
            assert (await peer.ask(shutdown(1), 3, 5)).error_code == 0
            assert (await peer.ask(markers(), 0, 5)).markers == []
            assert other.versions == [1, 3, 0]
            assert other.connections == 1
            peer.close()

    run(test())


def test_the_versions_are_waited_for_once_and_heard_on_every_connection() -> None:
    """A broker may be another one after a restart: it is asked in the old version once at most."""

    async def test() -> None:
        async with OtherBroker(lambda number, message: NO_MARKERS) as other:
            peer = peer_of(lambda: other.address)
            await peer.ask(markers(), 2, 5)
            peer.close()
            other.serves = KAFKA_3_9
            with pytest.raises(PeerLost, match=r"hung up, asked for WriteTxnMarkers 2"):
                await peer.ask(markers(), 2, 5)
            await peer.ask(markers(), 2, 5)
            assert other.versions == [2, 1]
            assert other.connections == 3
            peer.close()

    run(test())


def test_what_another_address_serves_is_learned_before_it_is_asked() -> None:
    """The controller of today is a kbroker, that of tomorrow is not."""

    async def test() -> None:
        async with (
            OtherBroker(lambda number, message: NO_MARKERS) as first,
            OtherBroker(lambda number, message: NO_MARKERS, KAFKA_3_9) as second,
        ):
            where = [first.address]
            peer = peer_of(lambda: where[0])
            await peer.ask(markers(), 2, 5)
            where[0] = second.address
            await peer.ask(markers(), 2, 5)
            assert (first.versions, second.versions) == ([2], [1])
            peer.close()

    run(test())


def test_a_broker_that_is_too_old_is_named_and_not_asked() -> None:
    async def test() -> None:
        async with OtherBroker(lambda number, message: None, {ApiKey.FETCH: Versions(0, 12)}) as other:
            peer = peer_of(lambda: other.address)
            fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
            with pytest.raises(PeerLost, match=r"a test: of Fetch it serves 0-12, and we speak 13-17"):
                await peer.ask(fetch, 17, 5)
            with pytest.raises(PeerLost, match="it does not serve WriteTxnMarkers"):
                await peer.ask(markers(), 2, 5)
            assert other.asked == []
            peer.close()

    run(test())


def test_what_goes_wrong_again_and_again_is_logged_twice_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kbroker.peer")

    async def test() -> None:
        async with OtherBroker(lambda number, message: None) as other:
            peer = peer_of(lambda: other.address)
            for _ in range(20):
                with pytest.raises(PeerLost):
                    await peer.ask(markers(), 2, 5)

    run(test())
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    ended = "a test: the connection has ended: the other broker hung up, asked for WriteTxnMarkers 2"
    assert lines == [("INFO", ended), ("WARNING", f"{ended}; it is tried again and again")]


def test_a_peer_that_is_closed_while_it_connects_says_nothing_any_more() -> None:
    """A controller that was replaced meanwhile would give old orders."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        connecting, may_connect = asyncio.Event(), asyncio.Event()

        async def slowly(made: Any, host: str, port: int) -> Any:
            connecting.set()
            await may_connect.wait()
            return await loop.create_connection(made, host, port)

        async with OtherBroker(lambda number, message: GRANTED) as other:
            peer = Peer("us", "a test", slowly, lambda: other.address)
            asking = asyncio.create_task(peer.ask(shutdown(1), 3, 5))
            await connecting.wait()
            peer.close()
            may_connect.set()
            with pytest.raises(PeerLost, match="closed here"):
                await asking
            assert (await peer.ask(shutdown(2), 3, 5)).error_code == 0
            assert [message.broker_id for message in other.asked] == [2]
            peer.close()

    run(test())


def test_news_of_the_cluster_do_not_end_a_connection_that_is_being_made() -> None:
    """Unless the broker is not where it was."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        connecting, may_connect = asyncio.Event(), asyncio.Event()

        async def slowly(made: Any, host: str, port: int) -> Any:
            connecting.set()
            await may_connect.wait()
            return await loop.create_connection(made, host, port)

        async with OtherBroker(lambda number, message: GRANTED) as other:
            where: list[Address | None] = [other.address]
            peer = Peer("us", "a test", slowly, lambda: where[0])
            for is_there in (True, False):
                connecting.clear()
                may_connect.clear()
                asking = asyncio.create_task(peer.ask(shutdown(1), 3, 5))
                await connecting.wait()
                where[0] = other.address if is_there else None
                peer.follow()
                may_connect.set()
                if is_there:
                    assert (await asking).error_code == 0
                    peer.close()
                else:
                    with pytest.raises(PeerLost, match="closed here"):
                        await asking

    run(test())


def test_requests_that_are_on_their_way_together_are_answered_each() -> None:
    async def test() -> None:
        def answer(number: int, message: Any) -> Any:
            return ControlledShutdownResponse(error_code=message.broker_id, remaining_partitions=[])

        async with OtherBroker(answer) as other:
            peer = peer_of(lambda: other.address)
            answers = await asyncio.gather(*(peer.ask(shutdown(number), 3, 5) for number in range(10)))
            assert [one.error_code for one in answers] == list(range(10))
            assert other.connections == 1
            peer.close()

    run(test())


def test_a_frozen_broker_is_not_waited_for_once_it_has_left_the_cluster() -> None:
    async def test() -> None:
        async with OtherBroker(lambda number, message: SILENCE) as frozen:
            where: list[Address | None] = [frozen.address]
            way = InterBroker(
                1,
                {},
                asyncio.ensure_future,
                asyncio.get_running_loop().create_connection,
                lambda broker_id: where[0],
                lambda: 60,
            )
            told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            way.send(2, shutdown(1), 3, told.set_result)
            await frozen.was_asked.wait()
            way.brokers_changed()
            await asyncio.sleep(0)
            assert not told.done()
            where[0] = None
            way.brokers_changed()
            assert await told is None

    run(test())


def test_no_answer_in_time_is_a_lost_peer() -> None:
    async def test() -> None:
        async with OtherBroker(lambda number, message: SILENCE) as silent:
            with pytest.raises(PeerLost, match="no answer"):
                await peer_of(lambda: silent.address).ask(shutdown(1), 3, 0.05)
        with pytest.raises(PeerLost, match="cannot connect"):
            await peer_of(lambda: ("127.0.0.1", 1)).ask(shutdown(1), 3, 5)
        with pytest.raises(PeerLost, match="not there"):
            await peer_of(lambda: None).ask(shutdown(1), 3, 5)

    run(test())


def update(*brokers: tuple[int, Address], controller_epoch: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        live_brokers=[
            UpdateMetadataBroker(
                id=broker_id,
                endpoints=[
                    UpdateMetadataEndpoint(host=host, port=port, listener="PLAINTEXT", security_protocol=0)
                ],
            )
            for broker_id, (host, port, *_) in brokers
        ],
    )


def peers_of(tasks: list[asyncio.Task[None]], handled: list[Any], refusal: Exception | None = None) -> Peers:
    loop = asyncio.get_running_loop()

    def handle(context: Context, message: Any) -> Any:
        handled.append(message)
        if refusal is not None:
            raise refusal
        return UpdateMetadataResponse(error_code=0)

    return Peers(
        1,
        loop.call_soon,
        lambda work: tasks.append(loop.create_task(work)),
        loop.create_connection,
        listener="PLAINTEXT",
        timeout_s=5,
        leader_and_isr=handle,
        update_metadata=handle,
        stop_replica=handle,
    )


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (RuntimeError("planted"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_order_that_the_broker_itself_refuses_is_answered_as_over_the_wire(
    refusal: Exception, code: ErrorCode
) -> None:
    """The controller goes on with what it knows then: a topic's deletion is tried again."""

    async def test() -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        handled: list[Any] = []
        answered: list[Any] = []
        peers = peers_of([], handled, refusal)
        peers.answered = lambda request, response: answered.append(response)
        states = [StopReplicaPartitionState(partition_index=3, leader_epoch=1, delete_partition=True)]
        stop = StopReplicaRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)],
        )
        request = ControlRequest(1, 5, stop, 3)
        peers.send(request)
        await asyncio.sleep(0.01)
        assert (len(handled), failures) == (1, [])
        [response] = answered
        assert response.error_code == code
        assert replica_outcomes(request, response) == {TopicPartition("t", 3): code}

    run(test())


def test_orders_arrive_once_each_and_in_order_whatever_breaks() -> None:
    """An order that was not answered is sent again, before the next one."""

    async def test() -> None:
        def answer(number: int, message: Any) -> Any:
            return None if number in (1, 3, 4) else UpdateMetadataResponse(error_code=0)

        async with OtherBroker(answer) as other:
            tasks: list[asyncio.Task[None]] = []
            answered: list[int] = []
            peers = peers_of(tasks, [])
            peers.answered = lambda request, response: answered.append(request.message.controller_epoch)
            for epoch in (1, 2, 3):
                message = update((2, other.address), controller_epoch=epoch)
                peers.send(ControlRequest(2, 5, message, 8))
            await asyncio.gather(*tasks)
            assert answered == [1, 2, 3]
            assert [message.controller_epoch for message in other.asked] == [1, 1, 2, 2, 2, 3]
            peers.forget()

    run(test())


def test_orders_to_itself_take_no_socket_and_keep_their_order() -> None:
    async def test() -> None:
        handled: list[Any] = []
        answered: list[Any] = []
        peers = peers_of([], handled)
        peers.answered = lambda request, response: answered.append(response)
        for epoch in (1, 2):
            peers.send(ControlRequest(1, 5, update(controller_epoch=epoch), 8))
        assert handled == []
        await asyncio.sleep(0.01)
        assert [message.controller_epoch for message in handled] == [1, 2]
        assert len(answered) == 2

    run(test())


def test_what_is_meant_for_a_broker_that_is_gone_is_dropped() -> None:
    async def test() -> None:
        tasks: list[asyncio.Task[None]] = []
        peers = peers_of(tasks, [])
        peers.send(ControlRequest(2, 5, update((2, ("127.0.0.1", 1))), 8))
        await asyncio.sleep(0.05)
        assert not tasks[0].done(), "it tries"
        peers.send(ControlRequest(1, 5, update(), 8))
        await tasks[0]

    run(test())


def test_the_controller_is_found_where_it_is_by_then() -> None:
    """An answer of one who is not the controller is none."""

    async def test() -> None:
        async with (
            OtherBroker(lambda number, message: NOT_CONTROLLER) as old,
            OtherBroker(lambda number, message: GRANTED) as new,
        ):
            where = [Whereabouts(2, old.address)]
            channel = ControllerChannel(
                1,
                asyncio.get_running_loop().create_connection,
                lambda: where[0],
                lambda message, version: Parked(),
            )
            asking = asyncio.ensure_future(channel.ask(shutdown(1), 3, 10))
            await old.was_asked.wait()
            where[0] = Whereabouts(3, new.address)
            assert (await asking).error_code == 0
            channel.close()

    run(test())


def test_a_controller_that_is_frozen_is_not_waited_for_once_there_is_another() -> None:
    async def test() -> None:
        async with (
            OtherBroker(lambda number, message: SILENCE) as frozen,
            OtherBroker(lambda number, message: GRANTED) as new,
        ):
            where = [Whereabouts(2, frozen.address)]
            open_connection = asyncio.get_running_loop().create_connection
            channel = ControllerChannel(
                1, open_connection, lambda: where[0], lambda message, version: Parked()
            )
            asking = asyncio.ensure_future(channel.ask(shutdown(1), 3, 10))
            await frozen.was_asked.wait()
            where[0] = Whereabouts(3, new.address)
            channel.close()
            async with asyncio.timeout(5):
                assert (await asking).error_code == 0
            channel.close()

    run(test())


def test_this_broker_may_be_the_controller_itself() -> None:
    async def test() -> None:
        def decide(message: Any, version: int) -> Parked:
            parked = Parked()
            parked.complete(GRANTED)
            return parked

        where = Whereabouts(1, None)
        open_connection = asyncio.get_running_loop().create_connection
        assert (
            await ControllerChannel(1, open_connection, lambda: where, decide).ask(shutdown(1), 3)
        ) is GRANTED
        nobody = ControllerChannel(1, open_connection, lambda: Whereabouts(-1, None), decide)
        with pytest.raises(PeerLost, match="no controller"):
            await nobody.ask(shutdown(1), 3, 0.05)

    run(test())
