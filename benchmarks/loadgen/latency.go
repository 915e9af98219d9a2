package main

import (
	"encoding/binary"
	"fmt"
	"time"
)

// How long a record takes from the producer's write to the consumer's read. One connection produces a batch of
// one record at a steady rate, another fetches as consumers do: a Fetch waits for the next byte.
//
// Which records a reply brought follows from its size, since all batches have the same one and are larger than
// everything else in a reply.

type latencySpec struct {
	offsetAt    int
	batchBytes  int
	firstOffset int64
	rate        int
	duration    time.Duration
}

type latencies struct {
	Requests int     `json:"requests"`
	Fetches  int     `json:"fetches"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	AckP50   float64 `json:"ack_p50_ms"`
	AckP99   float64 `json:"ack_p99_ms"`
}

func latency(address, producePath, fetchPath string, spec latencySpec) (any, error) {
	produce, err := readFrames(producePath)
	if err != nil {
		return nil, err
	}
	fetch, err := readFrames(fetchPath)
	if err != nil {
		return nil, err
	}
	producer, err := dial(address)
	if err != nil {
		return nil, err
	}
	consumer, err := dial(address)
	if err != nil {
		return nil, err
	}
	if err := waitForStart(); err != nil {
		return nil, err
	}
	total := int(spec.duration.Seconds() * float64(spec.rate))
	sentAt := make([]time.Time, total)
	acked := make([]float64, total)
	seen := make([]float64, total)
	finished := make(chan error, 3)
	fetches := 0
	start := time.Now()
	go func() { finished <- consumer.consume(fetch[0], spec, sentAt, seen, &fetches) }()
	go func() { finished <- producer.readAcks(sentAt, acked) }()
	go func() { finished <- producer.produceAt(start, produce[0], spec.rate, sentAt) }()
	for i := 0; i < 3; i++ {
		if err := <-finished; err != nil {
			return nil, err
		}
	}
	result := latencies{Requests: total, Fetches: fetches, Seconds: time.Since(start).Seconds()}
	skip := total / latencyFraction
	result.P50, result.P99 = percentile(seen[skip:], 0.5)*1000, percentile(seen[skip:], 0.99)*1000
	result.AckP50, result.AckP99 = percentile(acked[skip:], 0.5)*1000, percentile(acked[skip:], 0.99)*1000
	return result, nil
}

// produceAt sends each request when it is due. What is late is not forgotten: it leaves at once.
func (c *client) produceAt(start time.Time, frame []byte, rate int, sentAt []time.Time) error {
	gap := time.Second / time.Duration(rate)
	for i := range sentAt {
		if wait := time.Until(start.Add(time.Duration(i) * gap)); wait > 0 {
			time.Sleep(wait)
		}
		binary.BigEndian.PutUint32(frame[correlationAt:], uint32(i))
		sentAt[i] = time.Now()
		if _, err := c.conn.Write(frame); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) readAcks(sentAt []time.Time, acked []float64) error {
	for i := range sentAt {
		if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.skipReply(); err != nil {
			return err
		}
		acked[i] = time.Since(sentAt[i]).Seconds()
	}
	return nil
}

func (c *client) consume(frame []byte, spec latencySpec, sentAt []time.Time, seen []float64, fetches *int) error {
	for next := 0; next < len(sentAt); *fetches++ {
		binary.BigEndian.PutUint32(frame[correlationAt:], uint32(c.received))
		binary.BigEndian.PutUint64(frame[spec.offsetAt:], uint64(spec.firstOffset+int64(next)))
		if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := c.conn.Write(frame); err != nil {
			return err
		}
		size, err := c.skipReply()
		if err != nil {
			return err
		}
		now := time.Now()
		for ; size >= spec.batchBytes; size -= spec.batchBytes {
			if next == len(sentAt) {
				return fmt.Errorf("more records came than were produced")
			}
			seen[next] = now.Sub(sentAt[next]).Seconds()
			next++
		}
	}
	return nil
}
