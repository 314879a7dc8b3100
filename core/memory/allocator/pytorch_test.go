package allocator

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgreesWithPyTorch compares every event of random sequences with the allocator inside an
// installed PyTorch, which testdata/real_allocator.cpp runs without a GPU. Build it as its first
// lines say and name it in ASRCONFIG_REAL_ALLOCATOR. Addresses of segments fall there in every
// second sequence without expandable segments: from PyTorch 2.13 on only the age of a segment
// counts. Older versions agree with the rising ones alone (ASRCONFIG_REAL_ALLOCATOR_RISING=1), as
// do expandable segments, whose unmapped parts are sought by address.
func TestAgreesWithPyTorch(t *testing.T) {
	program := os.Getenv("ASRCONFIG_REAL_ALLOCATOR")
	if program == "" {
		t.Skip("ASRCONFIG_REAL_ALLOCATOR does not name the program built from testdata/real_allocator.cpp")
	}
	sequences, err := strconv.Atoi(os.Getenv("ASRCONFIG_REAL_ALLOCATOR_SEQUENCES"))
	if err != nil {
		sequences = 60
	}
	falling := os.Getenv("ASRCONFIG_REAL_ALLOCATOR_RISING") == ""
	for seed := range uint64(sequences) {
		r := rand.New(rand.NewPCG(seed, 2))
		text, limit, total := randomText(r)
		settings, err := ParseSettings(text)
		require.NoError(t, err, text)
		settings.Limit, settings.DeviceTotal = limit, total
		input, ours := record(r, settings, 1500)
		command := exec.Command(program, orHuge(total, limit), orHuge(limit, 0), order(falling && seed%2 == 1 && !settings.ExpandableSegments))
		command.Env = append(os.Environ(), "PYTORCH_CUDA_ALLOC_CONF="+text)
		command.Stdin = &input
		var complaints bytes.Buffer
		command.Stderr = &complaints
		output, err := command.Output()
		require.NoError(t, err, "%s\n%s", text, complaints.String())
		lines := bufio.NewScanner(bytes.NewReader(output))
		for event, want := range ours {
			require.True(t, lines.Scan())
			require.Equal(t, lines.Text(), want, "seed %d, event %d, %s, limit %d of %d", seed, event, text, limit, total)
		}
	}
}

func order(falling bool) string {
	if falling {
		return "1"
	}
	return "0"
}

func orHuge(size, otherwise uint64) string {
	return strconv.FormatUint(cmp.Or(size, otherwise, 1<<45), 10)
}

// randomText draws options as PyTorch reads them, with the memory of the device.
func randomText(r *rand.Rand) (text string, limit, total uint64) {
	s := randomSettings(r)
	var words []string
	add := func(format string, a ...any) { words = append(words, fmt.Sprintf(format, a...)) }
	if s.LargeSegmentSize > 0 {
		add("large_segment_size_mb:%d", s.LargeSegmentSize/mib)
	}
	if s.MaxSplitSize > 0 {
		add("max_split_size_mb:%d,max_non_split_rounding_mb:%d", s.MaxSplitSize/mib, max(s.MaxNonSplitRounding, s.LargeSegmentSize)/mib)
	}
	if s.RoundupPower2Divisions != [divisionIntervals]uint64{} {
		var list []string
		for i, divisions := range s.RoundupPower2Divisions {
			list = append(list, fmt.Sprintf("%d:%d", 1<<i, divisions))
		}
		add("roundup_power2_divisions:[%s]", strings.Join(list, ","))
	}
	if s.GarbageCollectionThreshold > 0 {
		add("garbage_collection_threshold:%v", s.GarbageCollectionThreshold)
	}
	if s.MemoryFraction != nil {
		add("per_process_memory_fraction:%v", *s.MemoryFraction)
	}
	if s.ExpandableSegments {
		add("expandable_segments:True")
	}
	if s.ThrowOnCudaMallocOOM {
		add("throw_on_cudamalloc_oom:True")
	}
	return strings.Join(words, ","), s.Limit, s.DeviceTotal
}

// record runs random events and returns them as the program's input, with the expected output.
func record(r *rand.Rand, settings Settings, events int) (input bytes.Buffer, want []string) {
	a := New(settings)
	var live []int
	var blocks []Block
	for range events {
		failed := 0
		switch choice := r.IntN(100); {
		case choice < 1:
			a.EmptyCache()
			input.WriteString("e\n")
		case choice < 51 || len(live) == 0:
			size := randomSize(r)
			block, err := a.Malloc(size)
			if err == nil {
				live = append(live, len(blocks))
			} else {
				failed = 1
			}
			blocks = append(blocks, block)
			fmt.Fprintf(&input, "m %d\n", size)
		default:
			i := r.IntN(len(live))
			if err := a.Free(blocks[live[i]]); err != nil {
				panic(err)
			}
			fmt.Fprintf(&input, "f %d\n", live[i])
			live = append(live[:i], live[i+1:]...)
		}
		s := a.Stats()
		want = append(want, fmt.Sprintf("%d %d %d %d %d", failed, s.Reserved, s.Allocated, s.Requested, s.Retries))
	}
	return input, want
}
