package hardware

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// boardsFor makes boards named by UUID: "GPU-a" is a GPU, "GPU-a[MIG-1 MIG-2]" one in MIG mode,
// "GPU-a!" a broken one.
func boardsFor(names ...string) []board {
	var all []board
	for _, name := range names {
		uuid, inside, mig := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		b := board{unit: unit{uuid: strings.TrimSuffix(uuid, "!")}, migMode: mig}
		if strings.HasSuffix(uuid, "!") {
			b.err = errors.New(b.uuid + " is broken")
		}
		for _, slice := range strings.Fields(inside) {
			b.slices = append(b.slices, unit{uuid: slice, mig: true})
		}
		all = append(all, b)
	}
	return all
}

func uuidsOf(units []unit) string {
	all := ""
	for i, u := range units {
		if i > 0 {
			all += " "
		}
		all += u.uuid
	}
	return all
}

func TestVisibleDevices(t *testing.T) {
	const unset = "(unset)"
	three := boardsFor("GPU-aa1", "GPU-aa2", "GPU-b")
	sliced := boardsFor("GPU-a[MIG-1 MIG-2]", "GPU-b", "GPU-c[MIG-GPU-c/7/0]")
	tests := []struct {
		boards            []board
		setting, expected string
	}{
		{three, unset, "GPU-aa1 GPU-aa2 GPU-b"},
		{three, "", ""},
		{three, "-1", ""},
		{three, "NoDevFiles", ""},
		{three, "2,0", "GPU-b GPU-aa1"},
		{three, " 1 , 2 ", "GPU-aa2 GPU-b"},
		{three, "+1", "GPU-aa2"},
		{three, "1gpu,2x", "GPU-aa2 GPU-b"}, // strtoul
		{three, "0,-1,1", "GPU-aa1"},        // cut at the negative entry
		{three, "0,3,1", "GPU-aa1"},         // cut at the unknown index
		{three, "0,,1", "GPU-aa1"},          // cut at the empty entry
		{three, "0,GPU-b", "GPU-aa1"},       // cut at another kind
		{three, "1,1", ""},                  // repeated
		{three, "99999999999999999999", ""}, // overflow
		{three, "4294967296", ""},           // must not wrap round to 0
		{three, "GPU-b,GPU-aa1", "GPU-b GPU-aa1"},
		{three, "GPU-aa", ""},                    // ambiguous
		{three, "GPU-b,GPU-aa,GPU-aa1", "GPU-b"}, // cut at the ambiguous one
		{three, "GPU-b,GPU-x", "GPU-b"},
		{three, "GPU-b,0", "GPU-b"},
		{three, "GPU-b,GPU-b", ""},
		{three, "GPU-b,GPU-", "GPU-b"},
		{three, "GPU-aa1,GPU-aa1x", "GPU-aa1"},
		{three[2:], "GPU-b,GPU-", ""}, // two spellings of one GPU
		{three, "gpu-b", ""},
		{three, "MIG-1", ""},
		{sliced, unset, "MIG-1"}, // one MIG device, and no whole GPU beside it
		{sliced, "1", "GPU-b"},
		{sliced, "0", "MIG-1"},
		{sliced, "1,0", "MIG-1"},
		{sliced, "MIG-2,MIG-1", "MIG-2"},
		{sliced, "MIG-2,MIG-2", ""},
		{sliced, "MIG-GPU-c/7/0", "MIG-GPU-c/7/0"},
		{sliced, "MIG-", ""},
		{sliced, "GPU-c", "MIG-GPU-c/7/0"},
		{boardsFor("GPU-a[]", "GPU-b"), unset, "GPU-b"}, // MIG mode without an instance
		{boardsFor("GPU-a!", "GPU-b"), unset, "GPU-b"},
		{nil, "0", ""},
	}
	for _, test := range tests {
		setting := &test.setting
		if test.setting == unset {
			setting = nil
		}
		units, _ := selectUnits(test.boards, setting)
		assert.Equal(t, test.expected, uuidsOf(units), "CUDA_VISIBLE_DEVICES=%q", test.setting)
	}
}

func TestOrderOfUnlikeGPUs(t *testing.T) {
	boards := boardsFor("GPU-t4", "GPU-v100", "GPU-a[MIG-1]", "GPU-b!", "GPU-t5")
	for i, name := range []string{"T4", "V100", "A100", "T4", "T4"} {
		boards[i].name = name
	}
	alike := boardsFor("GPU-1", "GPU-2")
	text := func(s string) *string { return &s }
	for _, test := range []struct {
		boards   []board
		options  Options
		expected string
		noted    bool
	}{
		// all are visible: only their numbers may differ
		{boards[:2], Options{}, "GPU-t4 GPU-v100", false},
		{boards[:2], Options{VisibleDevices: text("0,1")}, "GPU-t4 GPU-v100", false},
		{boards[:2], Options{VisibleDevices: text("0")}, "GPU-t4", true},
		{boards[:2], Options{VisibleDevices: text("0"), DeviceOrder: "FASTEST_FIRST"}, "GPU-t4", true},
		{boards[:2], Options{VisibleDevices: text("0"), DeviceOrder: "PCI_BUS_ID"}, "GPU-t4", false},
		{boards[:2], Options{VisibleDevices: text("GPU-v")}, "GPU-v100", false},
		{boards[:2], Options{VisibleDevices: text("5")}, "", false},
		{alike, Options{VisibleDevices: text("1")}, "GPU-2", false},
		{boards[1:3], Options{VisibleDevices: text("0")}, "GPU-v100", true},
		// What CUDA has listed counts, whatever the environment says by now.
		{boards[:2], Options{CUDAOrder: []string{"GPU-v100", "GPU-t4"}}, "GPU-v100 GPU-t4", false},
		{boards[:2], Options{CUDAOrder: []string{"GPU-v100"}, VisibleDevices: text("0")}, "GPU-v100", false},
		{boards, Options{CUDAOrder: []string{"GPU-t5", "GPU-v100", "GPU-t4"}}, "GPU-t5 GPU-v100 GPU-t4", false},
		// What cannot be is not believed.
		{boards[:2], Options{CUDAOrder: []string{"GPU-v100", "GPU-x"}}, "GPU-t4 GPU-v100", false},
		{boards[:2], Options{CUDAOrder: []string{"GPU-t4", "GPU-t4"}}, "GPU-t4 GPU-v100", false},
		{boards[:2], Options{CUDAOrder: []string{""}, VisibleDevices: text("1")}, "GPU-v100", true},
		{boards[:2], Options{CUDAOrder: []string{}, VisibleDevices: text("1")}, "GPU-v100", true},
		{boards[3:], Options{CUDAOrder: []string{"GPU-b"}}, "GPU-t5", false}, // a broken one
		{boards[2:3], Options{CUDAOrder: []string{"GPU-a"}}, "MIG-1", false}, // a sliced one
	} {
		s := &session{boards: test.boards}
		units, _ := s.visible(test.options)
		assert.Equal(t, test.expected, uuidsOf(units), "%+v", test.options)
		note := s.orderNote(test.options, units)
		assert.Equal(t, test.noted, note != "", "%+v: %s", test.options, note)
	}
	s := &session{boards: boards[:2]}
	units, _ := s.visible(Options{VisibleDevices: text("0")})
	assert.Contains(t, s.orderNote(Options{VisibleDevices: text("0")}, units), "CUDA_VISIBLE_DEVICES=0 may select other GPUs than those planned for (T4)")
}

func TestReasonsForSeeingNothing(t *testing.T) {
	hidden := strings.Repeat("-", 500)
	for _, test := range []struct {
		boards  []board
		setting *string
		reason  string
	}{
		{nil, nil, "lists no GPU"},
		{boardsFor("GPU-a!"), nil, "GPU-a is broken"},
		{boardsFor("GPU-a[]"), nil, "MIG mode is on"},
		{boardsFor("GPU-a", "GPU-b", "GPU-c", "GPU-d", "GPU-e", "GPU-f"), &hidden, "2 more"},
	} {
		units, reason := (&session{boards: test.boards}).visible(Options{VisibleDevices: test.setting})
		assert.Empty(t, units)
		assert.Contains(t, reason, test.reason)
		assert.Less(t, len(reason), 300)
	}
}

func FuzzVisibleDevices(f *testing.F) {
	for _, seed := range []string{"", "0", "1,0", "-1", "0,0", "GPU-a", "GPU-a,GPU-b", "MIG-1", "MIG-GPU-c/7/0", "0x1,\x00", "GPU-,", "+", "99999999999"} {
		f.Add(seed)
	}
	boards := boardsFor("GPU-a", "GPU-b!", "GPU-c[MIG-1 MIG-2]", "GPU-d")
	f.Fuzz(func(t *testing.T, setting string) {
		units, _ := selectUnits(boards, &setting)
		seen := map[string]bool{}
		for _, u := range units {
			require.False(t, seen[u.uuid], "a unit is listed twice")
			seen[u.uuid] = true
			require.False(t, u.mig && len(units) > 1, "a MIG device beside others")
			require.NotEqual(t, "GPU-b", u.uuid, "a broken board is listed")
		}
		require.LessOrEqual(t, len(units), strings.Count(setting, ",")+1, "more units than entries")
	})
}
