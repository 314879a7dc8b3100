package main

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// trouble is what goes wrong in a simulated run; its zero value is nothing.
type trouble struct {
	kind   string
	alert  []string // kinds of alerts that name it
	begins int      // step
	rate   float64  // bytes a step, an epoch, an evaluation or a second
	batch  func(*simulation, batch) batch

	// what it does at each of these times, once it has begun
	step, epoch, evaluation, evaluated, second harm
	due                                        func(*simulation) bool // nil: always
}

// harm takes memory, at a step of this batch; the error says that none was left.
type harm func(t *simulation, b batch) error

// suffer does what goes wrong at a time, if it has begun.
func (t *simulation) suffer(does harm, b batch) error {
	if does == nil || t.step < t.bad.begins || t.bad.due != nil && !t.bad.due(t) {
		return nil
	}
	if t.onset == 0 {
		t.onset, t.onsetS = max(t.told, 1), t.at
	}
	return does(t, b)
}

func unnoticed(*simulation, batch) error { return nil }

func leak(t *simulation, _ batch) error { return t.card.leak(t.bad.rate) }

func leakByLength(t *simulation, b batch) error { return t.card.leak(t.bad.rate * b.padded() / t.mean) }

// fragment keeps a small block of odd size now and then, in the middle of what was just freed: all of them are little, but the
// segments that they lie in can no longer be given back.
func (t *simulation) fragment(every int) error {
	for n := t.step/every - (t.step-1)/every; n > 0; n-- {
		if err := t.card.leak(t.bad.rate * (0.7 + 0.6*t.rng.Float64())); err != nil {
			return err
		}
	}
	return nil
}

func leakOfHost(t *simulation, _ batch) error {
	t.host.leaked += t.bad.rate * (0.5 + t.rng.Float64())
	return nil
}

// troubles are the ways to run out of memory. What takes less than 45 steps and 60 seconds from its beginning cannot be warned of in
// time, and is not counted.
var troubles = []struct {
	kind   string
	alerts []string
	set    func(t *simulation, rng *rand.Rand)
}{
	{"fast leak", []string{runlog.AlertLeak}, func(t *simulation, rng *rand.Rand) { t.leaks(rng, t.steps(rng, 60, 1000)) }},
	{"slow leak", []string{runlog.AlertLeak}, func(t *simulation, rng *rand.Rand) { t.leaks(rng, t.steps(rng, 1000, 20000)) }},
	{"leak an epoch", []string{runlog.AlertLeak}, func(t *simulation, rng *rand.Rand) {
		t.clips.durations = t.clips.durations[:min(len(t.clips.durations), t.clips.size*(50+rng.IntN(300)))]
		t.bad.rate, t.bad.epoch = t.spare()/(5+12*rng.Float64()), leak
	}},
	{"leak an evaluation", []string{runlog.AlertLeak}, func(t *simulation, rng *rand.Rand) {
		t.evalEvery = 50 + rng.IntN(300)
		t.bad.rate, t.bad.evaluated = t.spare()/(5+12*rng.Float64()), leak
	}},
	{"curriculum", []string{runlog.AlertLength}, func(t *simulation, rng *rand.Rand) {
		t.bad.begins, t.bad.step = 0, unnoticed
		t.clips.reorder("random")
		span := t.steps(rng, 300, 6000)
		most := slices.Max(t.clips.durations)
		t.tooLong(1.3 + 0.5*rng.Float64())
		t.bad.batch = func(t *simulation, b batch) batch {
			cut := most * (0.2 + 0.8*min(1, float64(t.step)/span))
			b.longest = min(b.longest*(1+float64(t.step)/span), cut)
			return b
		}
	}},
	{"sorted", []string{runlog.AlertLength}, func(t *simulation, rng *rand.Rand) {
		t.bad.begins, t.bad.step = 0, unnoticed
		t.clips.reorder("sorted")
		t.tooLong(1.1 + 0.5*rng.Float64())
	}},
	{"holes", []string{runlog.AlertFragmentation}, func(t *simulation, rng *rand.Rand) {
		t.clips.reorder("random")
		t.card.perS = 0.6 * (t.card.limit() - 4*t.card.weights) / t.clips.worst
		t.bad.rate = t.spare() / t.steps(rng, 200, 10000)
		t.bad.step = func(t *simulation, _ batch) error { // pieces of the cache that suit nothing any more; the simulated allocator hardly ever makes them by itself
			if t.rng.IntN(4) == 0 {
				t.card.stranded += 4 * t.bad.rate * (0.5 + t.rng.Float64())
			}
			return nil
		}
	}},
	{"pinned pieces", []string{runlog.AlertFragmentation, runlog.AlertLeak}, func(t *simulation, rng *rand.Rand) {
		t.clips.reorder("random")
		t.bad.rate = 1.2e6 * math.Exp(rng.Float64())
		every := max(1, int(t.steps(rng, 600, 6000)*t.bad.rate/(0.03*t.card.limit())))
		t.card.weights = 0.04 * t.card.limit()
		t.card.perS = (0.85*t.card.limit() - 4*t.card.weights) / (1.05 * t.clips.worst)
		t.bad.step = func(t *simulation, _ batch) error { return t.fragment(every) }
	}},
	{"evaluation bulge", []string{runlog.AlertEvaluation}, func(t *simulation, rng *rand.Rand) {
		t.evalBatches = 60 + rng.IntN(600)
		t.bad.rate = (t.card.limit() - 3*t.card.weights - 0.3*t.card.perS*t.clips.worst) / (float64(t.evalBatches) * (0.3 + 0.6*rng.Float64()))
		t.bad.evaluation = func(t *simulation, _ batch) error {
			t.gathered = t.bad.rate
			return nil
		}
	}},
	{"checkpoint", []string{runlog.AlertCheckpoint}, func(t *simulation, _ *rand.Rand) {
		t.spike, t.saveEvery = 0.3*t.card.limit(), min(t.saveEvery, 600)
		t.card.weights, t.card.perS = 0.04*t.card.limit(), 0.08*t.card.limit()/t.clips.worst
		t.bad.begins = max(t.bad.begins, t.saveEvery+1)
		t.bad.due = func(t *simulation) bool { return t.onset == 0 && t.step%t.saveEvery == t.saveEvery/3 }
		t.bad.second = func(t *simulation, _ batch) error { // another process starts between two checkpoints
			t.card.a.EmptyCache()
			t.card.grown += min(t.card.limit()-float64(t.card.a.Stats().Allocated)-0.6*t.spike, t.card.free())
			return nil
		}
	}},
	{"host RAM", []string{runlog.AlertHostRAM}, func(t *simulation, rng *rand.Rand) {
		t.bad.rate, t.bad.second = t.hostLeft()/t.seconds(rng), leakOfHost
	}},
	{"workers", []string{runlog.AlertWorkersRAM}, func(t *simulation, rng *rand.Rand) {
		t.host.ofWorkers = true
		t.bad.rate, t.bad.second = t.hostLeft()/t.seconds(rng), leakOfHost
	}},
	{"shm", []string{runlog.AlertShm}, func(t *simulation, rng *rand.Rand) {
		t.host.shmTotal = min(t.host.shmTotal, 0.2*t.host.total)
		t.host.shmUsual = min(t.host.shmUsual, 0.5*t.host.shmTotal)
		t.bad.rate = (t.host.shmTotal - t.host.shmUsual) / t.seconds(rng)
		t.bad.second = func(t *simulation, _ batch) error {
			t.host.shmGot += t.bad.rate * (0.5 + t.rng.Float64())
			return nil
		}
	}},
	{"other process", []string{runlog.AlertOthers}, func(t *simulation, rng *rand.Rand) {
		t.seesOthers = true
		t.bad.rate = t.spare() / t.seconds(rng)
		t.bad.second = func(t *simulation, _ batch) error {
			t.card.grown += min(t.bad.rate*(0.5+t.rng.Float64()), t.card.free())
			return nil
		}
	}},
}

// newBad draws a training that runs out of memory.
func newBad(seed uint64, kind int) *simulation {
	t := newSimulation(seed, 12)
	rng := rand.New(rand.NewPCG(seed, 0xbad))
	row := troubles[kind]
	t.bad.kind, t.bad.alert = row.kind, row.alerts
	if rng.IntN(2) == 0 {
		t.bad.begins = rng.IntN(1500)
	}
	row.set(t, rng)
	return t
}

func (t *simulation) leaks(rng *rand.Rand, steps float64) {
	t.bad.rate, t.bad.step = t.spare()/steps, leak
	if rng.IntN(2) == 0 {
		t.bad.step = leakByLength
	}
}

// steps draws a number between two, evenly by its logarithm.
func (t *simulation) steps(rng *rand.Rand, low, high float64) float64 {
	low = max(low, 60/t.pace)
	return low * math.Pow(max(high/low, 1), rng.Float64())
}

// seconds draws how long something takes, 90 s to three hours.
func (t *simulation) seconds(rng *rand.Rand) float64 { return 90 * math.Pow(120, rng.Float64()) }

// spare is what the worst batch leaves free.
func (t *simulation) spare() float64 {
	return t.card.limit() - 4*t.card.weights - 1.05*t.card.perS*t.clips.worst
}

// tooLong makes the worst batch need more than there is.
func (t *simulation) tooLong(times float64) {
	t.card.perS = times * (t.card.limit() - 4*t.card.weights) / t.clips.worst
}

func (t *simulation) hostLeft() float64 {
	return 0.996*t.host.total - t.host.base - float64(t.host.workers)*t.host.each - t.host.touched - t.host.shmUsual
}
