package monitor

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/story"
)

const (
	// maxMarks is the fixed length of the series of steps.
	maxMarks = 4096
	// rareMarks is how many entries of a kind on one GPU are kept whole however long the run. There are at most 3 kinds on 17
	// GPUs (none is one), so these alone never fill the table.
	rareMarks = 32
)

// mark is one entry of the series: one step, or several with the highest sizes, the sum of the times and the largest batch.
type mark struct {
	story.Step
	covers int
	room   float64 // headroom, the lowest
}

// group is what entries must have in common to become one.
type group struct {
	kind string
	gpu  int
}

func (k *mark) group() group { return group{k.Kind, k.GPU} }

// take adds a later entry of the same group to this one.
func (k *mark) take(later *mark) {
	k.Number, k.AtS = later.Number, later.AtS
	k.covers += later.covers
	k.room = either(k.room, later.room, math.Min)
	sum := func(a, b float64) float64 { return a + b }
	k.SpentS, k.WaitedS = either(k.SpentS, later.SpentS, sum), either(k.WaitedS, later.WaitedS, sum)
	if later.batch() > k.batch() || math.IsNaN(k.batch()) {
		k.AudioS, k.PaddedS, k.LongestS = later.AudioS, later.PaddedS, later.LongestS
	}
	k.Allocated, k.Reserved = either(k.Allocated, later.Allocated, math.Max), either(k.Reserved, later.Reserved, math.Max)
	k.PeakAllocated = either(k.PeakAllocated, later.PeakAllocated, math.Max)
	k.PeakReserved = either(k.PeakReserved, later.PeakReserved, math.Max)
}

// batch is how large the batch was, in seconds of audio.
func (k *mark) batch() float64 {
	if math.IsNaN(k.PaddedS) {
		return k.AudioS
	}
	return k.PaddedS
}

// either joins two values of which one may not be known.
func either(a, b float64, join func(a, b float64) float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return join(a, b)
}

// markLog is the series of steps, of fixed size.
type markLog struct {
	lock  sync.Mutex
	marks []mark
	width int // steps that an entry may cover, 1 as long as all fit
}

func newMarks() *markLog { return &markLog{marks: make([]mark, 0, maxMarks), width: 1} }

// add takes one step, as a rule without allocating.
func (l *markLog) add(s *story.Step, room float64) {
	l.lock.Lock()
	defer l.lock.Unlock()
	next := mark{Step: *s, covers: 1, room: room}
	if n := len(l.marks); n > 0 && l.marks[n-1].group() == next.group() && l.marks[n-1].covers < l.width {
		l.marks[n-1].take(&next)
		return
	}
	if len(l.marks) == maxMarks {
		l.makeRoom()
	}
	l.marks = append(l.marks, next)
}

// makeRoom joins entries that arrived by turns and so one by one; when that is not enough, all cover twice as many steps.
func (l *markLog) makeRoom() {
	for l.thin(); len(l.marks) > maxMarks*3/4; l.thin() {
		l.width *= 2
	}
}

// thin merges neighbours of the frequent groups into entries of at most width steps.
func (l *markLog) thin() {
	counts := map[group]int{}
	for i := range l.marks {
		counts[l.marks[i].group()]++
	}
	open := map[group]int{} // the place in kept of an entry that may take another
	kept := l.marks[:0]
	for _, next := range l.marks {
		of := next.group()
		if at, is := open[of]; is && counts[of] > rareMarks && kept[at].covers+next.covers <= l.width {
			kept[at].take(&next)
			continue
		}
		open[of] = len(kept)
		kept = append(kept, next)
	}
	slices.SortStableFunc(kept, func(a, b mark) int { return cmp.Compare(a.AtS, b.AtS) })
	l.marks = kept
}

// copy gives the steps as a story has them.
func (l *markLog) copy() story.Marks {
	l.lock.Lock()
	defer l.lock.Unlock()
	out := story.Marks{Number: []uint64{}, TimesS: []float64{}, Kind: []string{}, Covers: []int{}, GPU: []int{}}
	for i := range l.marks {
		k := &l.marks[i]
		out.Number, out.TimesS, out.Kind = append(out.Number, k.Number), append(out.TimesS, k.AtS), append(out.Kind, k.Kind)
		out.Covers, out.GPU = append(out.Covers, k.covers), append(out.GPU, k.GPU)
		out.SpentS, out.WaitedS = append(out.SpentS, k.SpentS), append(out.WaitedS, k.WaitedS)
		out.AudioS, out.PaddedS = append(out.AudioS, k.AudioS), append(out.PaddedS, k.PaddedS)
		out.LongestS = append(out.LongestS, k.LongestS)
		out.Allocated, out.Reserved = append(out.Allocated, k.Allocated), append(out.Reserved, k.Reserved)
		out.PeakAllocated = append(out.PeakAllocated, k.PeakAllocated)
		out.PeakReserved = append(out.PeakReserved, k.PeakReserved)
		out.Headroom = append(out.Headroom, k.room)
	}
	return out
}
