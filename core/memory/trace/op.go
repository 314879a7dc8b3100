package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Op is what an operation's name says about the storages it makes.
type Op struct {
	Unit Unit
	Pad  Pad
}

// Unit is what the number of an allocation counts. Sizes with thresholds, which no formula over a
// few shapes carries, are recorded as what they are computed from; package reduction computes them.
type Unit struct {
	Count   Count
	Columns uint32 // of the matrix whose rows are counted
}

// Count is what is counted.
type Count uint8

// What an allocation's number counts.
const (
	Bytes     Count = iota
	Elements        // "length": of a row, before a padded copy; nothing is allocated
	ColumnSum       // "column_sum:<columns>": rows that are summed up
	NormSum         // "norm_sum:<columns>": rows whose layer norm's gradients are summed up
	// "norm_blocks:4:<columns>": rows of a layer norm, of which blocks of float32 are made first
	NormBlocks
	NormBlocksHalf // "norm_blocks:2:<columns>": the same in 16 bits
)

// Pad is a copy that attention makes of a mask whose rows are no multiple of some number of
// elements. It is recorded at every length, after the length of a row, so that segments of all
// lengths have one structure.
type Pad struct {
	Multiple int64 // 0: no padded copy
	Back     int32 // allocations from the copy back to what it copies
}

const (
	lengthOp    = "length"
	padOp       = "pad:" // "pad:<multiple>:<allocations back>"
	maxMultiple = 1 << 20

	// MaxColumns of a matrix whose rows are counted.
	MaxColumns = 1 << 31
)

// countedBy are the beginnings of names that the number of columns follows.
var countedBy = map[string]Count{"column_sum:": ColumnSum, "norm_sum:": NormSum,
	"norm_blocks:4:": NormBlocks, "norm_blocks:2:": NormBlocksHalf}

// ParseOp reads an operation's name.
func ParseOp(name string) (Op, error) {
	if name == lengthOp {
		return Op{Unit: Unit{Count: Elements}}, nil
	}
	if text, ok := strings.CutPrefix(name, padOp); ok {
		first, second, _ := strings.Cut(text, ":")
		multiple, err := strconv.ParseUint(first, 10, 32)
		back, err2 := strconv.ParseUint(second, 10, 31)
		if err != nil || err2 != nil || multiple < 1 || multiple > maxMultiple || back < 2 {
			return Op{}, fmt.Errorf("operation %q: a padded copy is pad:<multiple, 1 to %d>:"+
				"<allocations back, from 2>", fault.Shorten(name), maxMultiple)
		}
		return Op{Pad: Pad{int64(multiple), int32(back)}}, nil
	}
	for beginning, count := range countedBy {
		text, ok := strings.CutPrefix(name, beginning)
		if !ok {
			continue
		}
		columns, err := strconv.ParseUint(text, 10, 64)
		if err != nil || columns < 1 || columns > MaxColumns {
			return Op{}, fmt.Errorf("operation %q: the columns are a number from 1 to %d",
				fault.Shorten(name), int64(MaxColumns))
		}
		return Op{Unit: Unit{count, uint32(columns)}}, nil
	}
	return Op{}, nil
}

// ParseOps reads the operations' names of a trace.
func ParseOps(names []string) (ops []Op, err error) {
	ops = make([]Op, len(names))
	for i, name := range names {
		if ops[i], err = ParseOp(name); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

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
	if !areWithin(s.Calls, len(calls)) {
		return fmt.Errorf("calls that are none of %d kinds", len(calls))
	}
	numbers := 0
	for _, call := range s.Calls {
		numbers += calls[call].Numbers
	}
	if numbers != len(s.Numbers) || slices.ContainsFunc(s.Numbers, func(n int64) bool {
		return n < 0 || n > maxMoved
	}) {
		return fmt.Errorf("calls have %d numbers from 0 to %d, not these %d", numbers,
			int64(maxMoved), len(s.Numbers))
	}
	return nil
}
