package trace

import "fmt"

// Shape is what the sizes of a micro-batch depend on.
type Shape struct {
	Batch  int64 `json:"batch"`
	Length int64 `json:"length"`
	Labels int64 `json:"labels"`
}

// Bounds of a shape: far beyond any training, and small enough that no arithmetic on them
// overflows.
const (
	MaxBatch  = 1 << 16
	MaxLength = 1 << 32
	MaxLabels = 1 << 20
)

// Check finds a shape out of range.
func (s Shape) Check() error {
	switch {
	case s.Batch < 1 || s.Batch > MaxBatch:
		return fmt.Errorf("batch is %d; the range is 1 to %d", s.Batch, MaxBatch)
	case s.Length < 1 || s.Length > MaxLength:
		return fmt.Errorf("length is %d; the range is 1 to %d", s.Length, int64(MaxLength))
	case s.Labels < 0 || s.Labels > MaxLabels:
		return fmt.Errorf("labels is %d; the range is 0 to %d", s.Labels, MaxLabels)
	}
	return nil
}

// Shape is the segment's, with false when it has none.
func (s *Segment) Shape() (Shape, bool) {
	if s.Batch == nil || s.Length == nil {
		return Shape{}, false
	}
	shape := Shape{Batch: *s.Batch, Length: *s.Length}
	if s.Labels != nil {
		shape.Labels = *s.Labels
	}
	return shape, true
}
