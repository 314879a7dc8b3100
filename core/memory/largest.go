package memory

import (
	"errors"
	"math"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// LargestRequest is a question about how many samples of each length fit at once.
type LargestRequest struct {
	// 1 to 131072 by rising length; none is simulated between two with the same answer
	Rows []LargestRow `json:"rows"`
	Near int          `json:"near"` // batch at which the search begins, 1 to most
	Most int          `json:"most"` // largest batch that is asked about, 1 to 65536
	// what no formula covers is missing in the answer; else it is answered by bounds
	Exactly bool `json:"exactly"`
	// traces of three batches of one shape have answered for all others so far
	ByBatch      bool `json:"by_batch"`
	Accumulation *int `json:"accumulation"` // micro-batches of a step, 1 to 65536; as traced
	Steps        *int `json:"steps"`        // optimizer steps, 1 to 1000; 3
	Device            // with a limit
}

// LargestRow is the longest sample of a micro-batch.
type LargestRow struct {
	Length int64 `json:"length"` // 1 to 2^32, in the trace's units
	Labels int64 `json:"labels"` // 0 to 2^20
	// of the shape that a batch of this one really has, the newest last; none where none is needed
	Traces     []uint64 `json:"traces"`
	RealLength int64    `json:"real_length"`
	RealLabels int64    `json:"real_labels"`
	Known      *int     `json:"known"` // the answer of an earlier question
}

// Largest is the answer to LargestRequest.
type Largest struct {
	// largest batch of each row that fits without giving cached memory back, 0 where not even one
	// sample does; they never rise. null: not known yet.
	Batches []*int `json:"batches"`
	ByBatch bool   `json:"by_batch"` // as in the request, after what its traces show
	// to be traced before the question is asked again; null: every batch is known
	Missing *Missing `json:"missing"`
}

// Missing are batches of one row that no trace answers for exactly.
type Missing struct {
	Row     int     `json:"row"`
	Batches []int64 `json:"batches"`
}

func (*Missing) Error() string { return "no trace answers for the shape" }

const (
	maxLargest     = 1 << 16
	maxLargestRows = 1 << 17
	// batch that is never traced: a trace that answers for it answers for all
	otherBatch = 1009
	// largest batch to which those of two and five point
	furthestBatch = 32
)

// provingBatches of one shape prove formulas of the batch.
var provingBatches = []int64{2, 3, 5}

// Largest searches the largest batch of each row: from near in steps that double until the answer
// lies between two sizes, and then by bisection. open returns the trace of a handle. Errors:
// InvalidArgument, Unsupported.
func (m *Model) Largest(r LargestRequest, open func(uint64) (*Model, error)) (Largest, error) {
	if err := r.check(); err != nil {
		return Largest{}, err
	}
	s := &batchSearch{LargestRequest: r, model: m, open: open, batches: make([]*int, len(r.Rows))}
	for i, row := range r.Rows {
		s.batches[i] = row.Known
	}
	err := s.fill()
	answer := Largest{Batches: s.batches, ByBatch: s.ByBatch}
	if errors.As(err, &answer.Missing) {
		return answer, nil
	}
	return answer, err
}

func (r LargestRequest) check() error {
	if len(r.Rows) == 0 || len(r.Rows) > maxLargestRows {
		return outOfRange("there are %d rows; pass 1 to %d", len(r.Rows), maxLargestRows)
	}
	if r.Most < 1 || r.Most > maxLargest || r.Near < 1 || r.Near > r.Most {
		return outOfRange("near is %d and most is %d; pass 1 to %d, near at most as large",
			r.Near, r.Most, maxLargest)
	}
	if r.LimitBytes == nil {
		return outOfRange("limit_bytes is missing")
	}
	return nil
}

type batchSearch struct {
	LargestRequest
	model   *Model
	open    func(uint64) (*Model, error)
	batches []*int
}

// fill answers for all rows. What the allocator reserves does not rise evenly: sometimes one more
// sample fits at a longer length, which is not counted.
func (s *batchSearch) fill() error {
	last := len(s.Rows) - 1
	for _, row := range []int{0, last} {
		if err := s.answer(row, s.Near); err != nil {
			return err
		}
	}
	if err := s.fillBetween(0, last); err != nil {
		return err
	}
	for i := 1; i <= last; i++ {
		if *s.batches[i] > *s.batches[i-1] {
			s.batches[i] = s.batches[i-1]
		}
	}
	return nil
}

func (s *batchSearch) fillBetween(low, high int) error {
	if high-low < 2 {
		return nil
	}
	fits := *s.batches[low]
	if fits == *s.batches[high] {
		for i := low + 1; i < high; i++ {
			s.batches[i] = s.batches[low]
		}
		return nil
	}
	middle := (low + high) / 2
	ratio := float64(s.Rows[low].Length) / float64(s.Rows[middle].Length)
	near := int(math.RoundToEven(float64(fits) * ratio)) // what fits falls as lengths rise
	if err := s.answer(middle, min(max(1, near), s.Most)); err != nil {
		return err
	}
	if err := s.fillBetween(low, middle); err != nil {
		return err
	}
	return s.fillBetween(middle, high)
}

func (s *batchSearch) answer(row, near int) error {
	if s.batches[row] != nil {
		return nil
	}
	batch, err := s.first(row, near)
	if err != nil {
		return err
	}
	low, high, step := 0, s.Most+1, 1
	for high-low > 1 {
		_, fits, err := s.peaks(row, batch, s.LimitBytes)
		if err != nil {
			return err
		}
		if fits {
			low = batch
		} else {
			high = batch
		}
		switch {
		case low > 0 && high <= s.Most:
			batch = (low + high) / 2
		case low > 0:
			batch, step = min(low+step, high-1), 2*step
		default:
			batch, step = max(high-step, 1), 2*step
		}
	}
	s.batches[row] = &low
	return nil
}

// first is the batch at which a search begins: where formulas do not answer, one for which few
// shapes are traced.
func (s *batchSearch) first(row, near int) (int, error) {
	if !s.Exactly {
		return near, nil
	}
	if exact, err := s.determines(s.model, s.shape(row, provingBatches[0])); exact || err != nil {
		return near, err
	}
	if s.ByBatch {
		if err := s.traced(row, provingBatches[:1], provingBatches); err != nil {
			return 0, err
		}
		other, _, err := s.answering(row, otherBatch)
		if s.ByBatch = other != nil; s.ByBatch || err != nil {
			return min(max(2, near), s.Most), err
		}
	}
	return s.extrapolated(row)
}

// extrapolated is the batch that fits if memory continues to rise as from two samples to five.
func (s *batchSearch) extrapolated(row int) (int, error) {
	const few, more = 2, 5
	if err := s.traced(row, []int64{few, more}, nil); err != nil {
		return 0, err
	}
	low, _, err := s.peaks(row, few, nil)
	if err != nil {
		return 0, err
	}
	high, _, err := s.peaks(row, more, nil)
	if err != nil {
		return 0, err
	}
	rise := max(1, (float64(high.PeakAllocated)-float64(low.PeakAllocated))/(more-few))
	batch, reserved := more, high.PeakReserved
	for range 2 { // reserved memory is predicted better from nearby sizes
		room := float64(*s.LimitBytes) - float64(reserved)
		batch = min(s.Most, furthestBatch, max(1, int(float64(batch)+room/rise)))
		e, _, err := s.peaks(row, batch, nil)
		if err != nil {
			return 0, err
		}
		reserved = e.PeakReserved
	}
	return batch, nil
}

// traced returns the batches that no trace answers for, or instead of them others, as an error.
func (s *batchSearch) traced(row int, batches, instead []int64) error {
	var missing []int64
	for _, batch := range batches {
		m, _, err := s.answering(row, batch)
		if err != nil {
			return err
		}
		if m == nil {
			missing = append(missing, batch)
		}
	}
	if missing == nil {
		return nil
	}
	if instead != nil {
		missing = instead
	}
	return &Missing{row, missing}
}

// peaks of a batch, and whether it fits below a limit without giving cached memory back.
func (s *batchSearch) peaks(row, batch int, limit *uint64) (p Peaks, fits bool, err error) {
	m, shape, err := s.answering(row, int64(batch))
	if err != nil {
		return p, false, err
	}
	if m == nil {
		return p, false, &Missing{row, []int64{int64(batch)}}
	}
	q := s.question(shape)
	q.LimitBytes, q.KeepCache = limit, limit != nil
	player, plan, err := m.player(q)
	if err != nil {
		return p, false, err
	}
	full, err := player.PlayAll(plan)
	return peaksOf(player), full == nil, err
}

// answering is the trace that answers for a batch, nil where one is to be made, and the shape that
// it is asked about.
func (s *batchSearch) answering(row int, batch int64) (*Model, trace.Shape, error) {
	asked := s.shape(row, batch)
	if !s.Exactly {
		return s.model, asked, nil
	}
	if exact, err := s.determines(s.model, asked); exact || err != nil {
		return s.model, asked, err
	}
	r := s.Rows[row]
	for i := len(r.Traces) - 1; i >= 0; i-- {
		m, err := s.open(r.Traces[i])
		if err != nil {
			return nil, asked, err
		}
		made := trace.Shape{Batch: batch, Length: r.RealLength, Labels: r.RealLabels}
		if exact, err := s.determines(m, made); exact || err != nil {
			return m, made, err
		}
	}
	return nil, asked, nil
}

func (s *batchSearch) determines(m *Model, shape trace.Shape) (bool, error) {
	d, err := m.Determined(s.question(shape))
	return d.Exactly, err
}

func (s *batchSearch) shape(row int, batch int64) trace.Shape {
	return trace.Shape{Batch: batch, Length: s.Rows[row].Length, Labels: s.Rows[row].Labels}
}

func (s *batchSearch) question(shape trace.Shape) Request {
	return Request{Batch: &shape.Batch, Length: &shape.Length, Labels: &shape.Labels,
		Accumulation: s.Accumulation, Steps: s.Steps, Device: s.Device}
}
