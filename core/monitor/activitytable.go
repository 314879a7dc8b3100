package monitor

import (
	"math"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// maxRows is the fixed length of the slow series, which is thinned as the fast one is: 4096 seconds are an hour and eight
// minutes, a week has rows of four minutes.
const maxRows = 4096

// merging tells how two values of one column become one. NaN is no value: the other one stands.
type merging int

const (
	mean merging = iota
	highest
	lowest
	bits
)

// The columns of a row in the order of runlog.HostReading and runlog.GPUReading.
var (
	hostMergings = []merging{mean, mean, mean, lowest, highest, highest, highest, highest, mean, mean, mean, mean}
	gpuMergings  = []merging{mean, mean, mean, mean, mean, highest, mean, bits, mean, mean, mean, highest, highest}
)

// merge joins a, which stands for n readings, and b, which stands for m.
func (how merging) merge(a, b float32, n, m int) float32 {
	switch {
	case a != a: // NaN
		return b
	case b != b:
		return a
	case how == highest:
		return max(a, b)
	case how == lowest:
		return min(a, b)
	case how == bits:
		return float32(uint32(a) | uint32(b))
	}
	return (a*float32(n) + b*float32(m)) / float32(n+m)
}

// activityTable is the slow series: a table of fixed size. Numbers of 24 bits are exact to 4 KiB in 64 GiB and take half the memory.
type activityTable struct {
	lock   sync.Mutex
	times  []float64
	cells  []float32 // row by row, the host's and then each GPU's: a page of memory is touched when the one before is full
	rules  []merging // of each column
	perRow int       // readings that a full row covers
	inLast int
	values []float64 // of the reading that is being added
}

func newActivityTable(gpus int) *activityTable {
	r := &activityTable{rules: append([]merging{}, hostMergings...), perRow: 1, times: make([]float64, 0, maxRows)}
	for range gpus {
		r.rules = append(r.rules, gpuMergings...)
	}
	r.cells = make([]float32, 0, maxRows*len(r.rules))
	return r
}

func (r *activityTable) add(at float64, host *runlog.HostReading, gpus []runlog.GPUReading) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.values = host.Values(r.values[:0])
	for i := range gpus {
		r.values = gpus[i].Values(r.values)
	}
	if r.inLast == r.perRow && len(r.times) == maxRows {
		r.halve()
	}
	if r.inLast == r.perRow || len(r.times) == 0 {
		r.append(at)
	}
	last := r.row(len(r.times) - 1)
	for i, rule := range r.rules {
		last[i] = rule.merge(last[i], float32(r.values[i]), r.inLast, 1)
	}
	r.inLast++
}

func (r *activityTable) append(at float64) {
	r.times = append(r.times, at)
	for range r.rules {
		r.cells = append(r.cells, float32(math.NaN()))
	}
	r.inLast = 0
}

func (r *activityTable) row(k int) []float32 { return r.cells[k*len(r.rules) : (k+1)*len(r.rules)] }

// halve merges every two neighbours of a full table.
func (r *activityTable) halve() {
	for k := range maxRows / 2 {
		r.times[k] = r.times[2*k]
		to, a, b := r.row(k), r.row(2*k), r.row(2*k+1)
		for i, rule := range r.rules {
			to[i] = rule.merge(a[i], b[i], 1, 1)
		}
	}
	r.times, r.cells = r.times[:maxRows/2], r.cells[:maxRows/2*len(r.rules)]
	r.perRow *= 2
	r.inLast = r.perRow
}

// copy gives the rows as a run log has them.
func (r *activityTable) copy(gpus int) runlog.ActivitySeries {
	r.lock.Lock()
	defer r.lock.Unlock()
	out := runlog.ActivitySeries{TimesS: append([]float64{}, r.times...), GPUs: make([]runlog.GPUSeries, gpus)}
	into := out.Columns()
	for i := range out.GPUs {
		into = append(into, out.GPUs[i].Columns()...)
	}
	for i, column := range into {
		*column = make(runlog.Column, len(r.times))
		for k := range *column {
			(*column)[k] = float64(r.row(k)[i])
		}
	}
	return out
}
