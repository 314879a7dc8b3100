package memory

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// eachTrace runs a benchmark over the traces in the folder ASRCONFIG_TRACES, which
// benchmarks/simulation_speed.py records.
func eachTrace(b *testing.B, run func(b *testing.B, m *Model, seconds int64)) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("ASRCONFIG_TRACES"), "*.trace"))
	require.NoError(b, err)
	if len(files) == 0 {
		b.Skip("no traces in ASRCONFIG_TRACES")
	}
	for _, file := range files {
		read, err := trace.ReadFile(file)
		require.NoError(b, err)
		m, err := New(read)
		require.NoError(b, err)
		perSecond, ok := m.about["length_per_second"].(float64)
		require.True(b, ok)
		b.Run(strings.TrimSuffix(filepath.Base(file), ".trace"), func(b *testing.B) { run(b, m, int64(perSecond)) })
	}
}

// BenchmarkAnswer is one question about another shape; the figure to hold is 5 ms.
func BenchmarkAnswer(b *testing.B) {
	eachTrace(b, func(b *testing.B, m *Model, second int64) {
		batch, length, labels := int64(7), second*27/2, int64(200)
		if fixed, ok := m.about["fixed_length"].(float64); ok {
			length = int64(fixed)
		}
		r := Request{Batch: &batch, Length: &length, Labels: &labels}
		plan, err := m.plan(r)
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			_, err := m.Simulate(r)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(replay.Events(plan)), "events")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(replay.Events(plan)), "ns/event")
	})
}

// BenchmarkTraining is 500 steps of one micro-batch of 8 clips each, of lengths from 1 to 20 s; the
// figure to hold is 1 s.
func BenchmarkTraining(b *testing.B) {
	eachTrace(b, func(b *testing.B, m *Model, second int64) {
		r := RunRequest{}
		draw := rand.New(rand.NewPCG(5, 5))
		for range 500 {
			length := second + draw.Int64N(19*second)
			labels := 15 * length / second
			if fixed, ok := m.about["fixed_length"].(float64); ok {
				length = int64(fixed)
			}
			r.Windows = append(r.Windows, [][3]int64{{8, length, labels}})
		}
		b.ReportAllocs()
		for b.Loop() {
			_, err := m.Run(r)
			require.NoError(b, err)
		}
	})
}
