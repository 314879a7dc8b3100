package trace

import (
	"fmt"
	"math"
)

// Bounds that arrays are made for.
const (
	MaxLengths = 64
	MaxTags    = 16
)

const (
	maxSegments = 1 << 12
	maxEvents   = 1 << 26 // of all segments
	maxNames    = 1 << 20
	maxStorage  = 1 << 50 // bytes of one storage
	maxField    = 1 << 20 // of a convolution
)

// check makes sure that every number of a decoded trace is what later code takes for granted.
func (t *Trace) check() error {
	for key, value := range t.About {
		switch v := value.(type) {
		case nil, string, bool:
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("about: %q is not a number", key)
			}
		default:
			return fmt.Errorf("about: %q is neither text, number, boolean nor null", key)
		}
	}
	for _, names := range []struct {
		label string
		n     int
		limit int
	}{{"ops", len(t.Ops), maxNames}, {"modules", len(t.Modules), maxNames},
		{"tags", len(t.Tags), MaxTags}, {"segments", len(t.Segments), maxSegments}} {
		if names.n == 0 || names.n > names.limit {
			return fmt.Errorf("%d %s; the range is 1 to %d", names.n, names.label, names.limit)
		}
	}
	for _, op := range t.Ops {
		if _, err := ParseOp(op); err != nil {
			return err
		}
	}
	if err := checkLengths(t.Lengths); err != nil {
		return err
	}
	if err := checkCalls(t.Calls); err != nil {
		return err
	}
	return t.checkSegments()
}

func checkLengths(lengths []Length) error {
	if len(lengths) == 0 || len(lengths) > MaxLengths {
		return fmt.Errorf("%d lengths; the range is 1 to %d, the input's first", len(lengths),
			MaxLengths)
	}
	for i, r := range lengths {
		if i == 0 {
			if r.Of != nil {
				return fmt.Errorf("length 0 (%s) is the input's and is made of no other", r.Name)
			}
			continue
		}
		if r.Of == nil || *r.Of < 0 || *r.Of >= i {
			return fmt.Errorf("length %d (%s) is not made of an earlier one", i, r.Name)
		}
		for _, n := range []struct{ value, low int64 }{{r.Kernel, 1}, {r.Stride, 1}, {r.Padding, 0},
			{r.Dilation, 1}} {
			if n.value < n.low || n.value > maxField {
				return fmt.Errorf("length %d (%s): kernel %d, stride %d, padding %d, dilation %d",
					i, r.Name, r.Kernel, r.Stride, r.Padding, r.Dilation)
			}
		}
	}
	return nil
}
