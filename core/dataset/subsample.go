package dataset

import "math/rand/v2"

// Subsample says what a draw stands for.
type Subsample struct {
	Drawn      int   // clips that were drawn, bad ones too; without what listing found bad
	Population int   // clips that they were drawn from
	Shards     []int // rows that were read of each shard of a stream, one behind the other; nil: drawn one by one
}

// subsample takes size entries at random without replacement and keeps their order; all of them, with a nil Sample, when size is
// absent or not smaller than their number. Strays are always kept.
func subsample(entries []entry, size *int, seed int64) ([]entry, *Subsample) {
	population := 0
	for _, e := range entries {
		if !e.stray {
			population++
		}
	}
	if size == nil || *size >= population {
		return entries, nil
	}
	// Selection sampling (Knuth, TAOCP 3.4.2, algorithm S): each is taken with the chance wanted / left.
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	picked := make([]entry, 0, *size)
	left, wanted := population, *size
	for _, e := range entries {
		if e.stray {
			picked = append(picked, e)
			continue
		}
		if random.IntN(left) < wanted {
			picked = append(picked, e)
			wanted--
		}
		left--
	}
	return picked, &Subsample{Drawn: *size, Population: population}
}
