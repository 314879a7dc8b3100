package monitor

import "math"

// maxPoints is the fixed length of the history. When it is full, neighbours are merged: a run of any length fits, a short
// one at full resolution, and no peak is ever lost. 8192 points of 100 ms are 13 minutes; a day's run has points of 13 s.
const maxPoints = 8192

// absent stands in a series for a value that could not be read; no memory is that large.
const absent = math.MaxUint64

// memoryTable is a table of fixed size: one row per point, a column for the host and one for each GPU.
type memoryTable struct {
	times    []float64
	columns  [][]uint64
	perPoint int     // samples that a full point covers: 1, 2, 4, …
	inLast   int     // samples that the last point covers so far
	newest   float64 // time of the newest sample
}

func newMemoryTable(gpus int) memoryTable {
	s := memoryTable{times: make([]float64, 0, maxPoints), columns: make([][]uint64, 1+gpus), perPoint: 1}
	for i := range s.columns {
		s.columns[i] = make([]uint64, 0, maxPoints)
	}
	return s
}

func (s *memoryTable) gpus() int { return len(s.columns) - 1 }

// add takes one sample, without allocating.
func (s *memoryTable) add(at float64, host uint64, gpus []uint64) {
	if s.inLast == s.perPoint && len(s.times) == maxPoints {
		s.halve()
	}
	if s.inLast == s.perPoint || len(s.times) == 0 {
		s.times = append(s.times, at)
		for i := range s.columns {
			s.columns[i] = append(s.columns[i], absent)
		}
		s.inLast = 0
	}
	s.inLast++
	s.newest = at
	last := len(s.times) - 1
	s.columns[0][last] = higher(s.columns[0][last], host)
	for i, used := range gpus {
		s.columns[1+i][last] = higher(s.columns[1+i][last], used)
	}
}

// halve merges every two neighbours of a full table.
func (s *memoryTable) halve() {
	for i := range maxPoints / 2 {
		s.times[i] = s.times[2*i]
	}
	s.times = s.times[:maxPoints/2]
	for i, column := range s.columns {
		s.columns[i] = merged(column[:0], column, 2)
	}
	s.perPoint *= 2
	s.inLast = s.perPoint
}

// merged appends to out the highest value of every group of neighbours. out may be the front of column itself.
func merged(out, column []uint64, group int) []uint64 {
	for start := 0; start < len(column); start += group {
		highest := column[start]
		for _, value := range column[start:min(start+group, len(column))] {
			highest = higher(highest, value)
		}
		out = append(out, highest)
	}
	return out
}

// higher is the larger of two values, where an absent one counts as none.
func higher(a, b uint64) uint64 {
	switch {
	case a == absent:
		return b
	case b == absent:
		return a
	}
	return max(a, b)
}
