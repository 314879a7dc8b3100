package main

import (
	"math"
	"math/rand/v2"

	"github.com/asrconfig/asrconfig-go/core/forecast"
	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/runlog"
)

// simulation is one simulated training, told to the forecasts step by step and second by second.
type simulation struct {
	rng    *rand.Rand
	w      *forecast.Forecaster
	card   *card
	host   *host
	clips  *clips
	bad    trouble
	limitS float64 // simulated seconds after which it ends

	at, sampled float64
	step, told  int     // training steps; steps of all kinds
	pace        float64 // seconds of a step of mean length
	mean        float64 // padded seconds
	lengths     bool    // told to the monitor
	seesOthers  bool

	evalEvery, evalBatches int
	gathered               float64 // bytes a batch that an evaluation gathers
	saveEvery              int
	saveS, spike           float64

	onsetS float64 // when what goes wrong began
	onset  int
	ended  bool // out of memory
}

// newSimulation draws a training in order. Its worst batch and the rest of the cache fit.
func newSimulation(seed uint64, hours float64) *simulation {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	order := orders[rng.IntN(len(orders))]
	if rng.IntN(8) == 0 {
		order = "sorted"
	}
	t := &simulation{
		rng: rng, w: forecast.New(1), clips: newClips(rng, order), host: newHost(rng), limitS: hours * 3600,
		pace: 0.2 * math.Pow(40, rng.Float64()), lengths: rng.IntN(4) > 0, seesOthers: rng.IntN(5) > 1,
		evalEvery: 100 + rng.IntN(900), evalBatches: 10 + rng.IntN(150), saveEvery: 200 + rng.IntN(1000), saveS: 2 + 15*rng.Float64(),
	}
	total := []float64{16e9, 24e9, 40e9, 80e9}[rng.IntN(4)]
	others := 0.0
	if rng.IntN(4) == 0 {
		others = 0.3 * rng.Float64() * total
	}
	c := newCard(rng, total, others)
	t.card = c
	c.weights = (0.02 + 0.08*rng.Float64()) * c.limit() // with gradients and optimizer state four times this
	fill := 0.5 + 0.4*rng.Float64()
	room := fill*c.limit() - 4*c.weights
	c.perS = room / (1.05 * t.clips.worst)
	c.remain = 64e3
	if rng.IntN(3) == 0 {
		c.remain += 0.1 * rng.Float64() * c.perS
	}
	for _, b := range t.clips.epoch(rng) {
		t.mean += b.padded()
	}
	t.mean /= float64(max(1, len(t.clips.epoch(rng))))
	if rng.IntN(3) == 0 {
		t.gathered = 0.5 * rng.Float64() * (1 - fill) * c.limit() / float64(t.evalBatches)
	}
	t.spike = 0.5 * rng.Float64() * (1 - fill) * c.limit()
	return t
}

// play goes on until the memory or the time is over.
func (t *simulation) play() {
	if t.card.start() != nil {
		panic("the weights do not fit")
	}
	t.pass(20 + 60*t.rng.Float64()) // loading
	for epoch := 0; !t.ended && t.at < t.limitS; epoch++ {
		if epoch == 0 || !t.host.persistent {
			t.host.started = t.at
		}
		t.ended = t.suffer(t.bad.epoch, batch{}) != nil
		batches := t.clips.epoch(t.rng)
		for i := 0; i < len(batches) && !t.ended && t.at < t.limitS; i++ {
			b := batches[i]
			if t.bad.batch != nil {
				b = t.bad.batch(t, b)
			}
			t.one(b)
		}
	}
}

// one is a training step, with the evaluation and the checkpoint that are due after it.
func (t *simulation) one(b batch) {
	t.step++
	err := t.suffer(t.bad.step, b)
	if err == nil {
		err = t.card.train(b.padded(), t.step == 1)
	}
	if err != nil {
		t.ended = true
		return
	}
	took := t.pace * (0.4 + 0.6*b.padded()/t.mean) * math.Exp(0.05*t.rng.NormFloat64())
	if t.rng.IntN(500) == 0 {
		took += 20 * t.pace * t.rng.Float64()
	}
	if t.step == 1 {
		took += 15
	}
	t.record(runlog.KindTrain, uint64(t.step), took, b)
	if t.step%t.evalEvery == 0 {
		t.evaluate()
	}
	if t.step%t.saveEvery == 0 && !t.ended {
		t.save()
	}
}

func (t *simulation) evaluate() {
	var kept []allocator.Block
	_ = t.suffer(t.bad.evaluation, batch{})
	for i := 0; i < t.evalBatches && !t.ended; i++ {
		b := batch{clips: t.clips.size, longest: t.clips.durations[t.rng.IntN(len(t.clips.durations))]}
		block, err := t.card.evaluate(b.padded(), t.gathered*(0.5+t.rng.Float64()))
		if err != nil {
			t.ended = true
			return
		}
		kept = append(kept, block)
		t.record(runlog.KindEvaluation, uint64(t.step), 0.3*t.pace*(0.8+0.4*t.rng.Float64()), b)
	}
	t.card.release(kept...)
	if t.suffer(t.bad.evaluated, batch{}) != nil {
		t.ended = true
	}
}

func (t *simulation) save() {
	if t.card.spike(t.spike) != nil {
		t.ended = true
		return
	}
	t.record(runlog.KindCheckpoint, uint64(t.step), t.saveS, batch{})
}

// record lets the time pass that a step took, and then tells of it.
func (t *simulation) record(kind string, number uint64, took float64, b batch) {
	t.pass(took)
	if t.ended {
		return
	}
	s := t.card.a.Stats()
	step := runlog.Step{
		Number: number, AtS: t.at, Kind: kind, SpentS: took, WaitedS: 0.02 * took, AudioS: b.audio, PaddedS: b.padded(), LongestS: b.longest,
		Allocated: float64(s.Allocated), Reserved: t.card.reserved(), PeakAllocated: float64(s.PeakAllocated),
		PeakReserved: float64(s.PeakReserved) + t.card.stranded, DriverFree: t.card.lastFree, Total: t.card.total,
	}
	if took > 0.1 || t.rng.IntN(3) > 0 { // the driver is read ten times a second, sometimes before the step reserved what it needed
		step.DriverFree = t.card.free()
	}
	t.card.lastFree = t.card.free()
	if !t.lengths {
		step.AudioS, step.PaddedS, step.LongestS = math.NaN(), math.NaN(), math.NaN()
	}
	t.told++
	t.w.Step(step)
}

// pass lets seconds go by, with a reading after each.
func (t *simulation) pass(seconds float64) {
	end := t.at + seconds
	for t.sampled+1 <= end && !t.ended {
		t.sampled += 1 + 0.01*t.rng.Float64()
		t.at = t.sampled
		_ = t.suffer(t.bad.second, batch{})
		s := t.host.read(t.rng, t.at)
		if s.HostAvailable < 0.004*s.HostTotal || s.ShmUsed >= s.ShmTotal {
			t.ended = true
		}
		others := (t.card.others + t.card.grown) * (1 + 0.002*t.rng.NormFloat64())
		if !t.seesOthers {
			others = math.NaN()
		}
		s.GPUs = []runlog.GPUSecond{{Total: t.card.total, Used: t.card.total - t.card.free(), Free: t.card.free(), Others: others}}
		t.w.Second(s)
	}
	t.at = max(t.at, end)
}
