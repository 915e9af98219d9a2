// Package lines is what the Go programs share: the loop over requests and the shape of what goes through it.
// program.py, one directory up, has the language.
package lines

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// What members are configured with, so that a rebalance takes a moment.
const (
	Session       = 10 * time.Second
	Heartbeat     = 200 * time.Millisecond
	Metadata      = 500 * time.Millisecond
	LargestRecord = 8 << 20 // so that it is the broker that refuses what is too large
	Transaction   = 10      // records
)

// Record is what is sent and what is received. Bytes become base64 by themselves, and nil becomes null.
type Record struct {
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   [][2]any `json:"headers"`
	Timestamp *int64   `json:"timestamp"`
}

// Header of a received record.
func Header(key string, value []byte) [2]any {
	if value == nil {
		return [2]any{key, nil}
	}
	return [2]any{key, value}
}

// Headers of a record to be sent.
func (record *Record) EachHeader(visit func(key string, value []byte)) {
	for _, header := range record.Headers {
		var value []byte
		if text, ok := header[1].(string); ok {
			quoted, _ := json.Marshal(text)
			_ = json.Unmarshal(quoted, &value)
		}
		visit(header[0].(string), value)
	}
}

// Request has the arguments of all verbs.
type Request struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Topics     []string          `json:"topics"`
	Pattern    string            `json:"pattern"`
	Group      string            `json:"group"`
	Assignor   string            `json:"assignor"`
	InstanceID string            `json:"instance_id"`
	Records    []Record          `json:"records"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	Starts     map[int32]int64   `json:"starts"`
	Before     map[int32]int64   `json:"before"`
	Offsets    map[int32]int64   `json:"offsets"`
	Count      int               `json:"count"`
	Reset      string            `json:"reset"`
	TimeoutMs  int               `json:"timeout_ms"`
	SessionMs  int               `json:"session_ms"`
	At         any               `json:"at"`
	Partitions json.RawMessage   `json:"partitions"`
	Configs    map[string]string `json:"configs"`
}

// PartitionCount is what `partitions` means where a topic is made.
func (request *Request) PartitionCount() (count int32) {
	_ = json.Unmarshal(request.Partitions, &count)
	return count
}

// PartitionList is what `partitions` means where offsets are asked for.
func (request *Request) PartitionList() (list []int32) {
	_ = json.Unmarshal(request.Partitions, &list)
	return list
}

// Session of a member.
func (request *Request) Session() time.Duration {
	if request.SessionMs == 0 {
		return Session
	}
	return time.Duration(request.SessionMs) * time.Millisecond
}

// Timeout of a request to consume.
func (request *Request) Timeout() time.Duration {
	if request.TimeoutMs == 0 {
		return 30 * time.Second
	}
	return time.Duration(request.TimeoutMs) * time.Millisecond
}

// Answer is one line.
type Answer = map[string]any

// Verb answers one request.
type Verb = func(*Request) (Answer, error)

var (
	output sync.Mutex
	input  = make(chan []byte)
)

// Leave says, by being readable, that a member has been told to leave.
var Leave <-chan []byte = input

// Report writes one line.
func Report(answer Answer) {
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// Serve answers requests until the input ends. codeOf finds Kafka's number in an error.
func Serve(verbs map[string]Verb, codeOf func(error) int) {
	go read()
	for line := range input {
		request := Request{Codec: "none", Acks: "all", Reset: "none", Assignor: "range"}
		if err := json.Unmarshal(line, &request); err != nil {
			panic(err)
		}
		answer, err := verbs[request.Do](&request)
		switch {
		case err != nil:
			Report(Answer{"error": codeOf(err), "text": err.Error()})
		case answer == nil:
			Report(Answer{})
		default:
			Report(answer)
		}
	}
}

func read() {
	reader := bufio.NewReader(os.Stdin)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			close(input)
			return
		}
		input <- line
	}
}
