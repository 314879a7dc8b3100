package memory

import (
	"testing"

	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/memory/trace/tracetest"
)

// largeLoop is a trace of about 15 000 storages in each of five windows, in as many layers as a
// large model has.
func largeLoop() *tracetest.Loop {
	f := tracetest.New(1650)
	for _, s := range tracetest.Shapes[:5] {
		f.Window(s, 1)
	}
	return f
}

// BenchmarkOpen reads and fits a trace: 150 ms at most.
func BenchmarkOpen(b *testing.B) {
	data := tracetest.Encode(&largeLoop().Trace)
	b.ReportMetric(float64(len(data)), "bytes")
	for b.Loop() {
		trace, err := trace.Decode(data)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := New(trace); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSimulate plays three steps at another shape; the figure to hold is 5 ms for a step of 15
// 000 events.
func BenchmarkSimulate(b *testing.B) {
	m := opened(b, largeLoop())
	batch, length, labels := int64(8), int64(4000), int64(30)
	r := Request{Batch: &batch, Length: &length, Labels: &labels}
	plan, err := m.plan(r)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.Simulate(r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(replay.Events(plan)), "events")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(replay.Events(plan)), "ns/event")
}

// BenchmarkRun plays 60 steps in 2 orders: a fifth and two fifths of what is tracetest.Shapes.
func BenchmarkRun(b *testing.B) {
	m := opened(b, largeLoop())
	lengths, labels := someLengths(1000)
	for b.Loop() {
		if _, err := m.Run(RunRequest{Lengths: lengths, Labels: labels, Batch: 8, Steps: 60, Seeds: 2}); err != nil {
			b.Fatal(err)
		}
	}
}
