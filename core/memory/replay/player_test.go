package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// byHand is a template of storages of one component each, of which some are freed.
func byHand(events []int32, survivors ...int32) *template.Template {
	t := &template.Template{Kind: "micro", Events: events, Phases: []template.Phase{{Name: "forward"}}, Survivors: survivors}
	for _, e := range events {
		if e >= 0 {
			t.Storages = append(t.Storages, template.Storage{Component: uint8(e), Survivor: -1})
		}
	}
	for number, storage := range survivors {
		t.Storages[storage].Survivor = int32(number)
	}
	return t
}

func micro(t *template.Template, window int, sizes ...int64) Segment {
	return Segment{Template: t, Position: template.Position{Window: window, Role: template.Micro}, Recorded: sizes}
}

func player(settings allocator.Settings) *Player {
	p := New(formula.Variables{}, settings, reduction.GPU{})
	p.Observer = NewObserver(1, 100, 100)
	return p
}

// TestInheritedFrees: the input of a window lives until its successor's second event, and the
// gradient to the end of its own.
func TestInheritedFrees(t *testing.T) {
	steady := byHand([]int32{0, 1, ^1}, 0)
	steady.Inherited = []template.Inherited{{Distance: template.Distance{Windows: 1, Role: template.Micro}, From: steady, Frees: []template.Free{{Event: 1}}}}
	p := player(allocator.Settings{})
	for window, want := range []uint64{1024, 2048, 4096} {
		full, err := p.Play(micro(steady, window, int64(want), 512))
		require.NoError(t, err)
		require.Nil(t, full)
		require.Equal(t, want, p.Allocator.Stats().Allocated, "only the window's own input")
	}
	line := p.Observer.Timeline([]string{"input", "gradient"})
	require.Equal(t, []uint64{1024, 1536, 1024, 3072, 2560, 2048, 6144, 4608, 4096}, line.Allocated, "both inputs after the first event")
	highest := p.Observer.Highest()
	require.Equal(t, uint64(6144), highest.Allocated)
	require.Equal(t, []uint64{6144, 0}, highest.Components[:2])
	require.Equal(t, []uint64{6144}, highest.Modules)
}

// TestLoadingAgain: a buffer's successor finds no cache of what was freed before.
func TestLoadingAgain(t *testing.T) {
	for phase, want := range map[string]uint64{trace.PhaseLoadAgain: 40 << 20, "load": 70 << 20} {
		moved := byHand([]int32{0, ^0, 1}, 1)
		moved.Phases = append(moved.Phases, template.Phase{Storage: 1, Name: phase})
		p := player(allocator.Settings{})
		_, err := p.Play(micro(moved, 0, 30<<20, 40<<20))
		require.NoError(t, err)
		require.Equal(t, want, p.Allocator.Stats().Reserved, phase)
	}
}

// TestRunningOutOfMemory: what a window that failed has allocated is gone; what it left for good
// before stays.
func TestRunningOutOfMemory(t *testing.T) {
	small, large := byHand([]int32{0}, 0), byHand([]int32{0, 1, ^0, ^1})
	p := player(allocator.Settings{Limit: 4 << 20, DeviceTotal: 4 << 20})
	full, err := p.PlayAll([]Segment{micro(small, 0, 1<<20), micro(large, 1, 512, 8<<20)})
	require.NoError(t, err)
	require.Equal(t, int32(1), full.Storage)
	require.Equal(t, uint64(8<<20), full.Cause.Wanted)
	require.Equal(t, uint64(1<<20+512), p.Allocator.Stats().Allocated)
	p.Abandon(full)
	require.Equal(t, uint64(1<<20), p.Allocator.Stats().Allocated)
}

const mib = 1 << 20

// microBatch has an input that stays, and an activation that does not.
func microBatch() *template.Template {
	t := byHand([]int32{0, 1, ^1}, 0)
	t.Inputs = 1
	t.Formulas = []formula.Formula{formula.Constant(16 * mib), formula.Constant(12 * mib)}
	t.Storages[1].Formula = 1
	t.Inherited = []template.Inherited{{Distance: template.Distance{Windows: 1, Role: template.Micro}, From: t, Frees: []template.Free{{Event: 1}}}}
	return t
}

// step is a window of three micro-batches, whose inputs the next window's first micro-batch frees.
func step(t *template.Template, window int) []Segment {
	all := make([]Segment, 3)
	for i, role := range []template.Role{template.Micro, template.Middle, template.Last} {
		all[i] = Segment{Template: t, Position: template.Position{Window: window, Order: i, Role: role}, Shape: trace.Shape{Batch: 1, Length: 1}}
	}
	all[0].Ahead = all[1:]
	return all
}

func TestInputsArePlacedTogether(t *testing.T) {
	p, steady := player(allocator.Settings{}), microBatch()
	full, err := p.PlayAll(step(steady, 0))
	require.NoError(t, err)
	require.Nil(t, full)
	line := p.Observer.Timeline([]string{"inputs", "activations"})
	require.Equal(t, []uint64{16 * mib, 32 * mib, 48 * mib, 60 * mib, 48 * mib, 60 * mib, 48 * mib, 60 * mib, 48 * mib}, line.Allocated)
	highest := p.Observer.Highest()
	require.Equal(t, []uint64{48 * mib, 12 * mib}, highest.Components[:2])

	full, err = p.Play(step(steady, 1)[0])
	require.NoError(t, err)
	require.Nil(t, full)
	require.Equal(t, uint64(96*mib), p.Allocator.Stats().PeakAllocated, "the last step's inputs go when all of this one's are there")
}

func TestInputsOfAnAbandonedWindow(t *testing.T) {
	for limit, want := range map[uint64]int{40 * mib: 0, 50 * mib: 1} {
		// while inputs are placed, in the first micro-batch
		p := New(formula.Variables{}, allocator.Settings{Limit: limit, DeviceTotal: limit}, reduction.GPU{})
		full, err := p.PlayAll(step(microBatch(), 0))
		require.NoError(t, err)
		require.Equal(t, int32(want), full.Storage)
		p.Abandon(full)
		require.Zero(t, p.Allocator.Stats().Allocated)
	}
}
