package batching

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

const (
	// poolSteps is how many steps share out their clips by length.
	poolSteps = 8
	// minPools is the fewest pools in an epoch. Neighbours in length are others in each epoch,
	// then.
	minPools = 4
	// groupsAStep is from how many ranges of length a step has a group of neighbours. With half as
	// many the share of each length varies more between steps than in random order, and the loss
	// was measurably higher where length went with voices and words; with twice as many next to no
	// padding is saved.
	groupsAStep = 8
)

// stratified shares out the clips of every few random steps, a pool, again: in order of length they
// make up ranges of equally many clips, and each step gets a group of neighbours from each range,
// at random. So a step has as many clips of each range as any other, and little padding in
// micro-batches of neighbours. Which clips make up a step does not depend on the processes.
func (c *sortedClips) stratified(order []uint32, r Options, random *rand.Rand) {
	steps := len(order) / r.StepSamples
	pools := r.pools(steps)
	for i := range pools {
		pool := order[i*steps/pools*r.StepSamples : (i+1)*steps/pools*r.StepSamples]
		c.deal(pool, r.StepSamples, random)
	}
}

// pools is in how many parts the steps of an epoch share out their clips.
func (r Options) pools(steps int) int {
	size := max(1, min(poolSteps, steps/minPools))
	return (steps + size - 1) / size
}

// deal makes the steps of a pool of such groups. Clips of one length stay in random order: in the
// dataset's, pieces of one recording would come in one group.
func (c *sortedClips) deal(pool []uint32, step int, random *rand.Rand) {
	slices.SortStableFunc(pool, func(a, b uint32) int {
		return cmp.Compare(c.sorted[b], c.sorted[a])
	})
	dealt, steps, groups := make([]uint32, len(pool)), len(pool)/step, min(groupsAStep, step)
	for g := range groups {
		at, end := g*step/groups, (g+1)*step/groups // places in each step
		clips := pool[at*steps : end*steps]
		for _, k := range random.Perm(steps) {
			copy(dealt[k*step+at:], clips[:end-at])
			clips = clips[end-at:]
		}
	}
	copy(pool, dealt)
}
