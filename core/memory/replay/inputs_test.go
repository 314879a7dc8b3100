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
