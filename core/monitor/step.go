package monitor

import (
	"math"

	"github.com/asrconfig/asrconfig-go/core/story"
)

// freshness is how old a sample may be, in seconds, for the driver to be asked beside the sampler: when samples stay away, the
// driver may hang, and a training step must not.
const freshness = 1

// Step takes one step as the training tells of it; its time and the driver's figures are filled in here. A GPU outside the
// range is none. After Stop it does nothing.
func (m *Monitor) Step(s story.Step) {
	if m.stopped() {
		return
	}
	if s.GPU < 0 || s.GPU >= m.history.gpus() {
		s.GPU = -1
	}
	s.AtS, s.DriverFree, s.Total = m.now(), math.NaN(), math.NaN()
	room := math.NaN()
	if s.GPU >= 0 {
		room = m.learn(&s)
	}
	m.marks.add(&s, room)
	if m.forecast != nil {
		m.forecast.Step(s)
	}
}

// learn takes PyTorch's counters of a step, fills in the driver's and gives the headroom. When PyTorch holds more than at the
// step before, a sample may be from before that: only then the driver is asked here.
func (m *Monitor) learn(s *story.Step) (room float64) {
	told := s.Allocated >= 0 && s.Reserved >= 0 // neither NaN
	m.lock.Lock()
	g := &m.stats.GPU[s.GPU]
	grown := told && g.Valid && s.Reserved > float64(g.Reserved) && m.clock.Wall().UnixNano()-m.stats.UnixNanos < freshness*1e9
	m.lock.Unlock()
	var used, total, free uint64
	if grown {
		var err error
		used, total, free, err = m.gpu.Memory(s.GPU)
		grown = err == nil
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if grown && g.Valid {
		g.refresh(used, total, free)
	}
	if told {
		g.learn(uint64(s.Allocated), uint64(s.Reserved))
	}
	if !g.Valid {
		return math.NaN()
	}
	s.DriverFree, s.Total = float64(g.Free), float64(g.Total)
	return float64(g.headroom())
}
