package monitor

import (
	"math"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// merging tells how two values of one column become one. NaN is no value: the other one stands.
type merging int

const (
	mean merging = iota
	highest
	lowest
	bits
)

// number is what a table keeps. Of 24 bits they are exact to 4 KiB in 64 GiB, and take half the
// memory.
type number interface{ float32 | float64 }

// merge joins a, which stands for n readings, and b, which stands for m.
func merge[F number](rule merging, a, b F, n, m int) F {
	switch {
	case a != a: // NaN
		return b
	case b != b:
		return a
	case rule == highest:
		return max(a, b)
	case rule == lowest:
		return min(a, b)
	case rule == bits:
		return F(uint32(a) | uint32(b))
	}
	return (a*F(n) + b*F(m)) / F(n+m)
}

// table is a series of fixed length. When it is full, neighbours are merged: a run of any length
// fits, a short one at full resolution.
type table[F number] struct {
	lock  sync.Mutex
	limit int // rows
	times []float64
	// row by row: a page of memory is touched when the one before is full
	cells  []F
	rules  []merging // of each column
	perRow int       // readings that a full row covers: 1, 2, 4, …
	inLast int       // readings that the last row covers so far
	newest float64   // time of the newest reading
}

func newTable[F number](limit int, rules []merging) *table[F] {
	return &table[F]{limit: limit, rules: rules, perRow: 1, times: make([]float64, 0, limit),
		cells: make([]F, 0, limit*len(rules))}
}

// add takes one reading, without allocating.
func (t *table[F]) add(atS float64, values []float64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.inLast == t.perRow && len(t.times) == t.limit {
		t.halve()
	}
	if t.inLast == t.perRow || len(t.times) == 0 {
		t.times, t.inLast = append(t.times, atS), 0
		for range t.rules {
			t.cells = append(t.cells, F(math.NaN()))
		}
	}
	last := t.row(len(t.times) - 1)
	for i, rule := range t.rules {
		last[i] = merge(rule, last[i], F(values[i]), t.inLast, 1)
	}
	t.inLast++
	t.newest = atS
}

func (t *table[F]) row(k int) []F { return t.cells[k*len(t.rules) : (k+1)*len(t.rules)] }

// halve merges every two neighbours of a full table.
func (t *table[F]) halve() {
	half := t.limit / 2
	for k := range half {
		t.times[k] = t.times[2*k]
		to, a, b := t.row(k), t.row(2*k), t.row(2*k+1)
		for i, rule := range t.rules {
			to[i] = merge(rule, a[i], b[i], 1, 1)
		}
	}
	t.times, t.cells = t.times[:half], t.cells[:half*len(t.rules)]
	t.perRow *= 2
	t.inLast = t.perRow
}

// copy returns the columns in at most limit rows, 0 or less for all, and how many readings a row
// covers.
func (t *table[F]) copy(limit int) (times []float64, columns []runlog.Column, perRow int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	group := 1
	if rows := len(t.times); limit > 0 && rows > limit {
		group = (rows + limit - 1) / limit
	}
	times, columns = []float64{}, make([]runlog.Column, len(t.rules))
	for k, atS := range t.times {
		first := k%group == 0
		if first {
			times = append(times, atS)
		}
		for i, value := range t.row(k) {
			if column := columns[i]; first {
				columns[i] = append(column, float64(value))
			} else {
				last := &column[len(column)-1]
				*last = merge(t.rules[i], *last, float64(value), k%group, 1)
			}
		}
	}
	return times, columns, group * t.perRow
}
