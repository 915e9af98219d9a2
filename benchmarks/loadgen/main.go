// loadgen drives a Kafka broker with frames that were made beforehand, so that the broker is the limit.
//
//	loadgen replay  -address HOST:PORT -frames FILE [-connections N] [-in-flight N] [-requests N] [-seconds S]
//	loadgen latency -address HOST:PORT -produce FILE -fetch FILE -offset-at N -batch N -first-offset N -rate N
//
// It knows no message, only the framing: an int32 size, and in every frame the correlation id, which it sets in
// requests and expects back in replies, in order. What is in the frames, and whether the broker did what they
// ask for, is for the caller to see to.
//
// It connects, prints "ready", waits for a line on stdin, runs, and prints one line of JSON. So whoever starts
// it can read the broker's CPU time right before and right after.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"sync"
	"time"
)

const (
	sizeBytes       = 4
	correlationAt   = 8 // in a request: size, API key, API version
	replyHeader     = 8 // of a reply: size, correlation id
	writeTogether   = 64 << 10
	receiveBuffer   = 256 << 10
	patience        = 60 * time.Second
	latencyFraction = 10 // the first tenth of a latency run only warms up
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: loadgen replay|latency OPTIONS"))
	}
	options := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	address := options.String("address", "", "of the broker")
	seconds := options.Float64("seconds", 2, "how long at most")
	var run func() (any, error)
	switch os.Args[1] {
	case "replay":
		frames := options.String("frames", "", "file of requests, sent in turn, again and again")
		once := options.Bool("once", false, "send each request once, and share them among the connections")
		connections := options.Int("connections", 1, "")
		inFlight := options.Int("in-flight", 1, "per connection")
		requests := options.Int("requests", 1<<40, "how many at most, over all connections")
		run = func() (any, error) {
			limits := limits{time.Duration(*seconds * float64(time.Second)), *requests / *connections, *inFlight}
			return replay(*address, *frames, *connections, *once, limits)
		}
	case "latency":
		produce := options.String("produce", "", "file with one Produce of one batch")
		fetch := options.String("fetch", "", "file with one Fetch of that partition")
		offsetAt := options.Int("offset-at", 0, "where in the Fetch frame its offset is")
		batch := options.Int("batch", 0, "bytes of the batch")
		first := options.Int64("first-offset", 0, "of what will be produced")
		rate := options.Int("rate", 1000, "requests per second")
		run = func() (any, error) {
			spec := latencySpec{*offsetAt, *batch, *first, *rate, time.Duration(*seconds * float64(time.Second))}
			return latency(*address, *produce, *fetch, spec)
		}
	default:
		fail(fmt.Errorf("no such command: %s", os.Args[1]))
	}
	if err := options.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	result, err := run()
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "loadgen:", err)
	os.Exit(1)
}

func waitForStart() error {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// readFrames cuts a file into the frames it holds.
func readFrames(path string) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var frames [][]byte
	for len(data) > 0 {
		if len(data) < correlationAt+4 {
			return nil, fmt.Errorf("%s ends within a frame", path)
		}
		size := sizeBytes + int(binary.BigEndian.Uint32(data))
		if size > len(data) {
			return nil, fmt.Errorf("%s ends within a frame", path)
		}
		frames = append(frames, data[:size:size])
		data = data[size:]
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return frames, nil
}

// client is one connection. Replies are counted, and dropped unread but for their correlation ids.
type client struct {
	conn     net.Conn
	reader   *bufio.Reader
	received int
	bytes    int64
}

func dial(address string) (*client, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, reader: bufio.NewReaderSize(conn, receiveBuffer)}, nil
}

// skipReply takes the next reply off the connection and returns its size.
func (c *client) skipReply() (int, error) {
	var header [replyHeader]byte
	if _, err := io.ReadFull(c.reader, header[:]); err != nil {
		return 0, fmt.Errorf("after %d replies: %w", c.received, err)
	}
	size := sizeBytes + int(binary.BigEndian.Uint32(header[:]))
	if id := binary.BigEndian.Uint32(header[sizeBytes:]); id != uint32(c.received) {
		return 0, fmt.Errorf("reply %d has the correlation id %d", c.received, id)
	}
	if _, err := c.reader.Discard(size - replyHeader); err != nil {
		return 0, fmt.Errorf("within reply %d: %w", c.received, err)
	}
	c.received++
	c.bytes += int64(size)
	return size, nil
}

// replyIsThere tells whether the next reply has arrived whole.
func (c *client) replyIsThere() bool {
	if c.reader.Buffered() < sizeBytes {
		return false
	}
	header, _ := c.reader.Peek(sizeBytes)
	return c.reader.Buffered() >= sizeBytes+int(binary.BigEndian.Uint32(header))
}

type limits struct {
	duration time.Duration
	requests int
	inFlight int
}

// drive keeps `inFlight` requests on the way until the limits are reached. Requests that may leave together
// leave in one write; a large one is not copied.
func (c *client) drive(frames [][]byte, limits limits) ([]float64, error) {
	end := time.Now().Add(limits.duration)
	sentAt := make([]time.Time, limits.inFlight)
	latencies := make([]float64, 0, 1<<16)
	together := make([]byte, 0, writeTogether)
	sent := 0
	for {
		now := time.Now()
		together = together[:0]
		for now.Before(end) && sent < limits.requests && sent-c.received < limits.inFlight {
			frame := frames[sent%len(frames)]
			binary.BigEndian.PutUint32(frame[correlationAt:], uint32(sent))
			sentAt[sent%limits.inFlight] = now
			sent++
			if len(frame) > writeTogether {
				if _, err := c.conn.Write(frame); err != nil {
					return nil, err
				}
				continue
			}
			together = append(together, frame...)
		}
		if len(together) > 0 {
			if _, err := c.conn.Write(together); err != nil {
				return nil, err
			}
		}
		if c.received == sent {
			return latencies, nil
		}
		if err := c.conn.SetReadDeadline(now.Add(patience)); err != nil {
			return nil, err
		}
		for first := true; first || (c.received < sent && c.replyIsThere()); first = false {
			slot := c.received % limits.inFlight
			if _, err := c.skipReply(); err != nil {
				return nil, err
			}
			latencies = append(latencies, time.Since(sentAt[slot]).Seconds())
		}
	}
}

type replayed struct {
	Requests   int     `json:"requests"`
	ReplyBytes int64   `json:"reply_bytes"`
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
}

func replay(address, path string, connections int, once bool, limits limits) (any, error) {
	frames, err := readFrames(path)
	if err != nil {
		return nil, err
	}
	shares := make([][][]byte, connections)
	clients := make([]*client, connections)
	for i := range clients {
		if clients[i], err = dial(address); err != nil {
			return nil, err
		}
		if once {
			shares[i] = frames[i*len(frames)/connections : (i+1)*len(frames)/connections]
			continue
		}
		for _, frame := range frames { // each connection has its own, since it writes into them
			shares[i] = append(shares[i], append([]byte(nil), frame...))
		}
	}
	if once && limits.requests > len(frames)/connections {
		limits.requests = len(frames) / connections
	}
	if err := waitForStart(); err != nil {
		return nil, err
	}
	latencies := make([][]float64, connections)
	errors := make([]error, connections)
	var all sync.WaitGroup
	start := time.Now()
	for i := range clients {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			latencies[i], errors[i] = clients[i].drive(shares[i], limits)
		}(i)
	}
	all.Wait()
	result := replayed{Seconds: time.Since(start).Seconds()}
	var merged []float64
	for i, c := range clients {
		if errors[i] != nil {
			return nil, errors[i]
		}
		result.Requests += c.received
		result.ReplyBytes += c.bytes
		merged = append(merged, latencies[i]...)
	}
	result.P50, result.P99 = percentile(merged, 0.5)*1000, percentile(merged, 0.99)*1000
	return result, nil
}

func percentile(values []float64, fraction float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sort.Float64s(values)
	return values[int(fraction*float64(len(values)-1))]
}
