package batching

type epochFigures struct {
	Figures
	price          Cost
	uses, weighted float64
	cost, slowest  float64 // of the process at hand, and of the slowest of its step so far
}

func (t *epochFigures) add(c *sortedClips, batch []uint32) {
	longest := batch[0]
	for _, p := range batch {
		longest = max(longest, p)
	}
	size, fits := len(batch), int(c.largest[longest])
	t.compare(MicroBatch{size, c.sorted[longest]}, c.sorted[len(c.sorted)-1])
	padded := float64(size) * c.sorted[longest]
	use := float64(size) / float64(fits)
	t.MicroBatches++
	t.PaddedS += padded
	t.uses += use
	cost := t.price.Of(padded)
	t.weighted += use * cost
	t.cost += cost
	if size > fits {
		t.OverMemory++
	}
}

// aboutLongest is the share of the longest clip's length that counts as about as long.
const aboutLongest = 0.9

// compare keeps a micro-batch that has more clips than all before it, or as many longer ones.
func (t *epochFigures) compare(m MicroBatch, longest float64) {
	fuller := func(other MicroBatch) bool {
		return m.Clips > other.Clips || m.Clips == other.Clips && m.Seconds > other.Seconds
	}
	if m.Seconds >= aboutLongest*longest && fuller(t.Longest) {
		t.Longest = m
	}
	if fuller(t.Largest) {
		t.Largest = m
	}
}

// endRank ends the share of one process of this pace in a step.
func (t *epochFigures) endRank(pace float64) {
	t.CostS += t.cost
	t.slowest = max(t.slowest, pace*t.cost)
	t.cost = 0
}

func (t *epochFigures) endStep() {
	t.SlowestS += t.slowest
	t.slowest = 0
	t.Steps++
}

func (t *epochFigures) figures(audio float64) Figures {
	if t.PaddedS > 0 {
		t.Padding = max(0, 1-audio/t.PaddedS)
	}
	if t.MicroBatches > 0 {
		t.Use = t.uses / float64(t.MicroBatches)
	}
	if t.CostS > 0 {
		t.UseByTime = t.weighted / t.CostS
	}
	return t.Figures
}

// audio is how many seconds some of the clips hold.
func (c *sortedClips) audio(positions []uint32) (total float64) {
	if len(positions) == len(c.sorted) {
		return sum(c.sorted)
	}
	for _, p := range positions {
		total += c.sorted[p]
	}
	return total
}

func sum(seconds []float64) (total float64) {
	for _, s := range seconds {
		total += s
	}
	return total
}
