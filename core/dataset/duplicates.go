package dataset

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	shownGroups  = 20
	shownMembers = 5
)

// duplicates finds usable clips that are very likely copies: the same digest, size and duration.
func duplicates(rows []row) profile.Duplicates {
	marks := suspects(rows)
	alike := func(a, b mark) int {
		x, y := &rows[a.row], &rows[b.row]
		return cmp.Or(cmp.Compare(a.digest, b.digest), cmp.Compare(x.size, y.size), cmp.Compare(x.duration, y.duration))
	}
	slices.SortFunc(marks, func(a, b mark) int {
		if a.digest != b.digest { // nearly always
			return cmp.Compare(a.digest, b.digest)
		}
		return cmp.Or(alike(a, b), cmp.Compare(a.row, b.row))
	})
	d := profile.Duplicates{Groups: [][]string{}}
	var groups [][]mark
	seconds := 0.0
	for from := 0; from < len(marks); {
		to := from + 1
		for to < len(marks) && alike(marks[from], marks[to]) == 0 {
			seconds += rows[marks[to].row].duration
			to++
		}
		if to > from+1 {
			d.Count += to - from - 1
			groups = append(groups, marks[from:to])
		}
		from = to
	}
	d.Hours = seconds / 3600
	slices.SortFunc(groups, func(a, b []mark) int { return cmp.Compare(a[0].row, b[0].row) })
	for _, group := range groups[:min(shownGroups, len(groups))] {
		var paths []string
		for _, m := range group[:min(shownMembers, len(group))] {
			paths = append(paths, fault.Printable(rows[m.row].path))
		}
		d.Groups = append(d.Groups, paths)
	}
	return d
}

// suspects are the usable clips that share the low bits of their digest with another: few, unless there are many copies.
func suspects(rows []row) (marks []mark) {
	size := uint64(1) << bits.Len(uint(16*len(rows)))
	once, more := make([]uint64, size/64+1), make([]uint64, size/64+1)
	for i := range rows {
		if marked(&rows[i]) {
			at, bit := rows[i].digest%size/64, uint64(1)<<(rows[i].digest%64)
			more[at] |= once[at] & bit
			once[at] |= bit
		}
	}
	suspect := func(r *row) bool { return marked(r) && more[r.digest%size/64]&(1<<(r.digest%64)) != 0 }
	count := 0
	for i := range rows {
		if suspect(&rows[i]) {
			count++
		}
	}
	marks = make([]mark, 0, count)
	for i := range rows {
		if suspect(&rows[i]) {
			marks = append(marks, mark{rows[i].digest, i})
		}
	}
	return marks
}

func marked(r *row) bool { return r.digest != 0 && r.duration > 0 }

// mark is what copies share.
type mark struct {
	digest uint64
	row    int
}
