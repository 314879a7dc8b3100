package trace

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Call is one kind of operation on the device; equal ones differ in their numbers alone.
type Call struct {
	Op    string `json:"op"`    // ATen's name, such as "aten.mm.default"
	DType string `json:"dtype"` // "float16", …; "" without tensors
	Phase string `json:"phase"` // as Segment.Phases
	// "strided": a copy changes the order of elements; "repeated": an operand is expanded along the
	// last dimension; ToPinned; OfHost
	Layout string `json:"layout"`
	// how many each call has, by which they are: see Moved, Row and Product
	Numbers int `json:"numbers"`
}

// What the numbers of a call are. Bytes read and written come last.
const (
	Moved   = 2 // bytes read and written alone
	Row     = 3 // before them the length of a row
	Product = 6 // before them batch, m, n and k
)

// Layouts of copies between the device and host memory.
const (
	ToPinned = "to_pinned" // takes pinned host memory
	OfHost   = "host"
)

const (
	maxCalls = 1 << 16
	maxMoved = 1 << 50 // of a number
)

func checkCalls(calls []Call) error {
	if len(calls) > maxCalls {
		return fmt.Errorf("%d calls; the range is 0 to %d", len(calls), maxCalls)
	}
	for i, c := range calls {
		if c.Numbers != Moved && c.Numbers != Row && c.Numbers != Product {
			return fmt.Errorf("call %d (%s) has %d numbers; 2, 3 or 6 are known", i,
				fault.Shorten(c.Op), c.Numbers)
		}
	}
	return nil
}

// checkCalls looks at the calls of a segment.
func (s *Segment) checkCalls(calls []Call) error {
	numbers := 0
	for i, call := range s.Calls {
		if call < 0 || int(call) >= len(calls) {
			return fmt.Errorf("call %d: kind %d of %d", i, call, len(calls))
		}
		numbers += calls[call].Numbers
	}
	if numbers != len(s.Numbers) {
		return fmt.Errorf("%d numbers of calls that have %d", len(s.Numbers), numbers)
	}
	for i, n := range s.Numbers {
		if n < 0 || n > maxMoved {
			return fmt.Errorf("number %d of the calls is %d; the range is 0 to %d", i, n,
				int64(maxMoved))
		}
	}
	return nil
}
