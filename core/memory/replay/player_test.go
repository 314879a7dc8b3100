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
