package plan

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// thenPacked is the mean epoch of a run whose first is in random order and whose later ones are
// packed, out of what an epoch of each takes.
func (s *search) thenPacked(p throughput, split map[string]batches) batches {
	first, b := split[batching.Random], split[batching.Packed]
	share := min(1, 1/profile.Or(s.in.Options.NumTrainEpochs, DefaultEpochs))
	mean := func(random, packed float64) float64 { return share*random + (1-share)*packed }
	b.order, b.costS = batching.RandomThenPacked, mean(first.costS, b.costS)
	b.microBatches = mean(first.microBatches, b.microBatches)
	b.figures.Padding = 1 - 1/mean(1/(1-first.figures.Padding), 1/(1-b.figures.Padding))
	b.epoch = p.epoch(b)
	return b
}

// thenPackedPrice names where packed steps behind a random epoch cost nothing that was measured,
// and what they cost elsewhere (docs/batching.md).
func (s *search) thenPackedPrice() string {
	d := s.in.Dataset
	if max(len(d.SampleRates), len(d.Channels), len(d.Codecs)) > 1 {
		return "its price is known for clips of one source, and these have several formats: where " +
			"length goes with voices and words, the final loss of packed steps was 3.5 % higher than " +
			"in random order"
	}
	return fmt.Sprintf("it is safe only where length says nothing of a clip's content and a "+
		"trained head is kept: there the final loss of packed steps was 1.4 %% ± 2.4 %% lower "+
		"than in random order; it is taken with length_handling=%q", batching.RandomThenPacked)
}
