package dataset

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// TestIntervalsHoldTheMean: of many samples of a made-up stream, about 95 % tell an interval with its mean in it, and a share of
// longer clips that is none too small; also where clips of a shard are alike, which intervals of single clips would miss.
func TestIntervalsHoldTheMean(t *testing.T) {
	const draws, shards, each = 400, 10, 20
	for name, between := range map[string]float64{"mixed shards": 0, "shards of books": 3} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			held, bound, naive := 0, 0, 0
			for range draws {
				var seconds []float64
				longest := 0.0
				for range shards {
					usual := 10 + between*random.NormFloat64()
					for range each {
						s := max(0.5, usual+2*random.NormFloat64())
						seconds, longest = append(seconds, s), max(longest, s)
					}
				}
				counts := make([]int, shards)
				for i := range counts {
					counts[i] = each
				}
				d := summed(clipsOf(seconds...), "", &Subsample{Drawn: 200, Population: 200, Shards: counts})
				require.NotNil(t, d.Sampling.MeanHighS)
				held += within(d.Sampling, 10)
				naive += within(summed(clipsOf(seconds...), "", &Subsample{Drawn: 200, Population: 200}).Sampling, 10)
				over := 0
				for range 1000 {
					if 10+between*random.NormFloat64()+2*random.NormFloat64() > longest {
						over++
					}
				}
				if float64(over)/1000 <= d.Sampling.LongerShare {
					bound++
				}
			}
			assert.InDelta(t, 0.95, float64(held)/draws, 0.03)
			if between > 0 {
				assert.Less(t, float64(naive)/draws, 0.75, "as if clips had been drawn one by one")
			} else {
				assert.Greater(t, float64(bound)/draws, 0.9)
			}
		})
	}
}

func within(s *profile.Sampling, mean float64) int {
	if s.MeanLowS <= mean && mean <= *s.MeanHighS {
		return 1
	}
	return 0
}

func TestSamplesOfFewClips(t *testing.T) {
	one := summed(clipsOf(3), "", &Subsample{Drawn: 1, Population: 9})
	assert.Nil(t, one.Sampling.MeanHighS, "one clip does not tell")
	assert.Equal(t, 9, *one.Sampling.Population)
	assert.InDelta(t, 0.95, one.Sampling.LongerShare, 1e-9)
	two := summed(clipsOf(3, 5, 0, 4), "", &Subsample{Drawn: 4, Population: 4, Shards: []int{2, 0, 2}})
	assert.Nil(t, two.Sampling.Population, "unknown")
	assert.Equal(t, 3, two.Sampling.Shards)
	assert.InDelta(t, 4, *two.Sampling.MeanHighS, 1e-9, "two shards of the same mean")
	assert.Nil(t, summed(nil, "", &Subsample{}).Sampling)
	assert.Nil(t, summed(clipsOf(3), "", nil).Sampling, "all were measured")
}

func TestShardsThatDoNotAddUp(t *testing.T) {
	for _, shards := range [][]int{{}, {1}, {3}, {-1, 3}, {1, 2}, {1 << 62, 1 << 62}} {
		c := &Collection{clips: collectionOf(clipsOf(1, 2))}
		_, err := c.Finish(context.Background(), Ending{Sampled: true, Shards: shards})
		isFault(t, err, fault.InvalidArgument, "2 clips given")
	}
	c := &Collection{clips: collectionOf(clipsOf(1, 2))}
	found, err := c.Finish(context.Background(), Ending{Sampled: true, Shards: []int{0, 2}})
	require.NoError(t, err)
	assert.Equal(t, 2, found.Profile.Sampling.Shards)
}
