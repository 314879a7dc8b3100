package batching

import "math/rand/v2"

const (
	// poolSteps is how many steps share out their clips by length: of log-normal durations 3.5 % are
	// padding then, with half as many 5.9 %, with twice as many 2.1 %.
	poolSteps = 8
	// minPools is how many pools an epoch has at least. Neighbours in length are others in each
	// epoch, then.
	minPools = 4
	// groupsAStep is how many groups of similar clips a process's share has at least, each from
	// another range of lengths, with four clips and more.
	groupsAStep = 4
	// maxGroup is the most clips of a group for a process. What only clips of some lengths have in
	// common weighs more in the gradient's noise the larger groups are.
	maxGroup = 8
)

// packed shares out the clips of every few random steps, a pool, once more: each step gets a group
// of neighbours in length from each part of the pool in order of length, at random. So a step has
// clips of all lengths, about as many of each as another step, and little padding in micro-batches
// of neighbours.
func packed(order []uint32, r Options, random *rand.Rand) {
	steps, to := len(order)/r.StepSamples, places(r.counts(r.StepSamples))
	pools := r.pools(steps)
	for i := range pools {
		from, end := i*steps/pools*r.StepSamples, (i+1)*steps/pools*r.StepSamples
		pool := order[from:end]
		deal(pool, r, random)
		eachStep(pool, r.StepSamples, func(step []uint32) { distribute(step, to) })
	}
}

// pools is in how many parts the steps of an epoch share out their clips.
func (r Options) pools(steps int) int {
	if steps == 0 {
		return 0
	}
	size := max(1, min(poolSteps, steps/minPools))
	return (steps + size - 1) / size
}

// groups is of how many groups a step consists.
func (r Options) groups() int {
	size := max(1, min(maxGroup, r.perRank()/groupsAStep)) * r.Ranks
	return (r.StepSamples + size - 1) / size
}

// deal makes the steps of a pool of such groups.
func deal(pool []uint32, r Options, random *rand.Rand) {
	longestFirst(pool)
	dealt, steps, groups := make([]uint32, len(pool)), len(pool)/r.StepSamples, r.groups()
	for g := range groups {
		at, end := g*r.StepSamples/groups, (g+1)*r.StepSamples/groups // places in each step
		clips := pool[at*steps : end*steps]
		for _, step := range random.Perm(steps) {
			copy(dealt[step*r.StepSamples+at:], clips[:end-at])
			clips = clips[end-at:]
		}
	}
	copy(pool, dealt)
}
