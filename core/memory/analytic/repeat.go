package analytic

// block is a stretch of nodes that stands for several equal ones in a row.
type block struct {
	from, to int
	repeats  int64
}

// repeat plays n equal layers. The first and the last are played; one between them stands for all the others, since each
// adds the same, in both directions. A simulated allocator gets to see them all.
func (t *tracker) repeat(n int, layer func(i int)) {
	played := n
	if t.device == nil {
		played = min(n, 3)
	}
	for i := range played {
		times := int64(1)
		if played < n && i == 1 {
			times = int64(n - 2)
		}
		from := len(t.nodes)
		t.repeated(times, func() { layer(i) })
		t.blocks = append(t.blocks, block{from, len(t.nodes), times})
	}
}

// repeated plays a stretch once and counts it as often as asked. Its highest moment is that of the first time or of the
// last, since what each time adds lies beneath the next.
func (t *tracker) repeated(times int64, play func()) {
	if times == 1 {
		play()
		return
	}
	outer, inner := t.highest, &highWater{}
	outer.copyPending(&t.live)
	var added account
	added.add(&t.live, -1)
	t.highest, t.repeats, t.workRepeats = inner, times, times
	play()
	t.repeats, t.workRepeats = 1, 1
	inner.copyPending(&t.live)
	added.add(&t.live, 1)
	t.live.add(&added, times-1)
	for _, at := range t.sharedFreed {
		s := t.storages[at]
		t.count(s.row, s.part, (times-1)*s.bytes)
	}
	t.sharedFreed = t.sharedFreed[:0]
	outer.merge(inner, &added, 0)
	outer.merge(inner, &added, times-1)
	t.highest = outer
}
