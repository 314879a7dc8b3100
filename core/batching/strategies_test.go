package batching

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func find(t *testing.T, c *Comparison, order, split string) Figures {
	t.Helper()
	for _, f := range c.Strategies {
		if f.Order == order && f.Split == split {
			return f
		}
	}
	t.Fatalf("no %s, %s", order, split)
	return Figures{}
}

// TestLittlePadding: where random order at one size pays 30 % and more, stratified steps of exactly as
// many clips pay 5 % at most.
func TestLittlePadding(t *testing.T) {
	for name, test := range map[string]struct {
		seconds []float64
		memory  Limits
		step    int
	}{
		"log-normal":   {lognormal(100_000, 1), fits(120, 30), 32},
		"heavy-tailed": {heavy(100_000, 1), fits(240, 60), 128},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Compare(test.seconds, options(Random, test.step, test.memory))
			require.NoError(t, err)
			plain, even := find(t, c, Random, Fixed), find(t, c, Stratified, Optimal)
			assert.GreaterOrEqual(t, plain.Padding, 0.30)
			assert.LessOrEqual(t, even.Padding, 0.05)
			assert.Greater(t, even.Speed, 1.02*find(t, c, Random, Optimal).Speed)
			assert.LessOrEqual(t, find(t, c, Bucketed, Optimal).Padding, 0.05)
			assert.Greater(t, even.Speed, 1.5)
			for _, f := range c.Strategies {
				assert.Zero(t, f.OverMemory, "%s, %s", f.Order, f.Split)
				assert.Equal(t, (100_000+test.step-1)/test.step, f.Steps)
				assert.LessOrEqual(t, f.Use, 1.0)
			}
			assert.LessOrEqual(t, find(t, c, Bucketed, Optimal).CostS, find(t, c, Bucketed, Fixed).CostS)
		})
	}
}

// TestStratifiedStepsHaveAllLengths: an eighth of each step is from each eighth of all lengths, more
// exactly than of random steps.
func TestStratifiedStepsHaveAllLengths(t *testing.T) {
	seconds := lognormal(20_000, 3)
	sorted := slices.Sorted(slices.Values(seconds))
	farthest := func(mode string) (most, sum float64) { // from an eighth
		e := epochOf(t, seconds, options(mode, 32, fits(120, 30)))
		for step := range slices.Chunk(e.Order[:32*e.Steps], 32) {
			var counts [8]int
			for _, number := range step {
				position, _ := slices.BinarySearch(sorted, seconds[number])
				counts[position*8/len(sorted)]++
			}
			for _, count := range counts {
				most, sum = max(most, math.Abs(float64(count-4))), sum+math.Abs(float64(count-4))
			}
		}
		return most, sum
	}
	most, sum := farthest(Stratified)
	mostAtRandom, atRandom := farthest(Random)
	assert.LessOrEqual(t, most, mostAtRandom)
	assert.Less(t, sum, 0.7*atRandom)
}

// TestClipsOfOneLengthComeInRandomOrder: pieces of one recording lie side by side in a dataset, and
// would come in one group.
func TestClipsOfOneLengthComeInRandomOrder(t *testing.T) {
	e, err := MakeEpoch(slices.Repeat([]float64{10}, 32*64), options(Stratified, 32, fits(120, 30)))
	require.NoError(t, err)
	near := 0
	for step := range slices.Chunk(e.Order, 32) {
		numbers := slices.Sorted(slices.Values(step))
		for i, number := range numbers[1:] {
			if number-numbers[i] < 8 { // of 2048 clips, 64 apart on average
				near++
			}
		}
	}
	assert.Less(t, near, 32*64/5, "as of random steps, of which an eighth lie so near")
}

// TestFewStepsStayRandom: a pool of one step has nothing to share out.
func TestFewStepsStayRandom(t *testing.T) {
	few, random := options(Stratified, 32, fits(120, 30)), options(Random, 32, fits(120, 30))
	for steps, same := range map[int]bool{1: true, 7: true, 8: false, 40: false} {
		stratified := epochOf(t, lognormal(32*steps, 1), few)
		drawn := epochOf(t, lognormal(32*steps, 1), random)
		assert.Equal(t, same, slices.Equal(stratified.Order, drawn.Order), "%d steps", steps)
		assert.Equal(t, same, len(stratified.Notes) == 1, "%d steps: %v", steps, stratified.Notes)
	}
}

// TestNeverOverMemory counts again, without the simulation: 10^4 steps of each mode, each share cut
// as the guard boundaries it.
func TestNeverOverMemory(t *testing.T) {
	seconds, memory := heavy(320_000, 5), fits(100, 60)
	for _, mode := range Modes {
		r := options(mode, 32, memory)
		r.Ranks = 2
		e := epochOf(t, seconds, r)
		require.Equal(t, 10_000, e.Steps)
		for share := range slices.Chunk(e.Order, 16) {
			lengths := make([]float64, len(share))
			for i, number := range share {
				lengths[i] = seconds[number]
			}
			batches, err := Split(lengths, memory, r.Cost)
			require.NoError(t, err)
			for _, batch := range batches {
				longest := 0.0
				for _, i := range batch {
					longest = max(longest, lengths[i])
				}
				require.LessOrEqual(t, len(batch), int(100/(0.5*float64(int(longest/0.5+0.999999)))))
			}
		}
	}
}

// TestASampleStandsForAll: figures of a third of the clips, scaled, against those of all.
func TestASampleStandsForAll(t *testing.T) {
	c, err := sortClips(lognormal(120_007, 2), fits(120, 30))
	require.NoError(t, err)
	r := options(Stratified, 64, c.memory)
	few := c.sample(40_000)
	assert.Len(t, few.sorted, 40_000)
	assert.Equal(t, c.sorted[len(c.sorted)-1], few.sorted[39_999])
	assert.Same(t, c, c.sample(120_007))
	exact, err := c.everyStrategy(r)
	require.NoError(t, err)
	sampled, err := few.everyStrategy(r)
	require.NoError(t, err)
	for i, f := range sampled {
		want := exact[i]
		f.scaleTo(120_007, r)
		assert.Equal(t, want.Steps, f.Steps)
		assert.InEpsilon(t, want.MicroBatches, f.MicroBatches, 0.01, "%s %s", f.Order, f.Split)
		assert.InEpsilon(t, want.PaddedS, f.PaddedS, 0.01, "%s %s", f.Order, f.Split)
		assert.InDelta(t, want.Padding, f.Padding, 0.005, "%s %s", f.Order, f.Split)
		assert.InDelta(t, want.Use, f.Use, 0.01, "%s %s", f.Order, f.Split)
		assert.InEpsilon(t, want.SlowestS, f.SlowestS, 0.01, "%s %s", f.Order, f.Split)
	}
}

// TestFiguresByHand: four clips in steps of two, one process, two of up to 2 s fit.
func TestFiguresByHand(t *testing.T) {
	r := Options{StepSamples: 2, Ranks: 1, Buckets: 4, Cost: Cost{OverheadS: 1}, Memory: Limits{{2, 2}, {4, 1}}}
	c, err := Compare([]float64{4, 1, 3, 2}, r)
	require.NoError(t, err)
	plain := find(t, c, Random, Fixed)
	assert.Equal(t, 1, *plain.MicroBatch)
	assert.Equal(t, Figures{Order: Random, Split: Fixed, MicroBatch: plain.MicroBatch, MicroBatches: 4, Steps: 2, PaddedS: 10,
		Use: 0.75, UseByTime: (5 + 4 + 0.5*(2+3)) / 14, CostS: 14, SlowestS: 14, Speed: 1,
		Longest: MicroBatch{1, 4}, Largest: MicroBatch{1, 4}}, plain)
	split := find(t, c, Bucketed, Optimal)
	assert.Equal(t, []MicroBatch{{1, 4}, {2, 2}}, []MicroBatch{split.Longest, split.Largest})
	assert.Equal(t, 10.0, c.AudioS)
	assert.Equal(t, 4.0, c.LongestS)
}

func TestCostOfLongest(t *testing.T) {
	seconds := append(slices.Repeat([]float64{10}, 2000), slices.Repeat([]float64{40}, 9)...)
	r := options(Random, 32, Limits{{10, 11}, {30, 6}, {40, 4}})
	rows, err := CostOfLongest(seconds, r, []float64{5, 30, 100})
	require.NoError(t, err)
	require.Len(t, rows, 1, "all clips are over 5 s and none over 100 s")
	one := rows[0]
	assert.Equal(t, []int{9, 4, 11}, []int{one.Clips, one.MicroBatch, one.WithoutThem})
	assert.InDelta(t, 360.0/20360, one.AudioShare, 1e-9)
	// By hand: in fours, about 9 of 503 batches last 40 s instead of 10 s: 9 x 4 x 30 s more and
	// the nine clips' own 90 s.
	assert.InDelta(t, (9*4*30+90)/(20090.0+9*4*30), one.PaddedShare, 0.003)
	// Cut by memory: 10 s in 182 of eleven, against one more of 9 long ones in three.
	assert.InDelta(t, (360+3*4)/(20000+182*4+360+3*4.0), one.SplitTimeShare, 0.002)
	assert.Contains(t, one.Text, "9 clips over 30 s force a micro-batch of 4; without them 11;")
	rows, err = CostOfLongest(seconds, r, nil)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	assert.Equal(t, 10.0, rows[0].OverS)
	r.Memory = Limits{{10, 11}}
	rows, err = CostOfLongest(seconds, r, nil)
	require.NoError(t, err)
	assert.Equal(t, "9 clips over 10 s: the longest does not fit even alone; without them a micro-batch of 11 fits", rows[0].Text)
	rows, err = CostOfLongest(append(seconds[:100:100], 11), options(Random, 32, Limits{{20, 11}}), []float64{10})
	require.NoError(t, err)
	assert.Equal(t, "1 clip over 10 s: a micro-batch of 11 fits with them and without", rows[0].Text)
}

func TestTheOldestComparisonIsForgotten(t *testing.T) {
	key := func(i int) [32]byte { return [32]byte{byte(i)} }
	for i := range maxCompared + 1 {
		remember(keptComparison{key(i), new(Comparison)})
	}
	require.Nil(t, recall(key(0)))
	require.NotNil(t, recall(key(1)))
	require.NotNil(t, recall(key(maxCompared)))
}
