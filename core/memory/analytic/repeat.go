package analytic

// block is a stretch of nodes that stands for several equal ones in a row.
type block struct {
	from, to int
	times    int64
}

// repeat plays n equal layers. The first and the last are played; one between them stands for all the others, since each
// adds the same, in both directions. A simulated allocator gets to see them all.
func (t *tape) repeat(n int, layer func(i int)) {
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
		t.multiplied(times, func() { layer(i) })
		t.blocks = append(t.blocks, block{from, len(t.nodes), times})
	}
}

// multiplied plays a stretch once and counts it as often as asked. Its highest moment is that of the first time or of the
// last, since what each time adds lies beneath the next.
func (t *tape) multiplied(times int64, play func()) {
	if times == 1 {
		play()
		return
	}
	outer, inner := t.window, &window{}
	outer.settle(&t.live)
	var added account
	added.add(&t.live, -1)
	t.window, t.times, t.equal = inner, times, times
	play()
	t.times, t.equal = 1, 1
	inner.settle(&t.live)
	added.add(&t.live, 1)
	t.live.add(&added, times-1)
	for _, at := range t.once {
		s := t.storages[at]
		t.count(s.row, s.part, (times-1)*s.bytes)
	}
	t.once = t.once[:0]
	outer.consider(inner, &added, 0)
	outer.consider(inner, &added, times-1)
	t.window = outer
}
