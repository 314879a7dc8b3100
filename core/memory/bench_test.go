package memory

import (
	"testing"
)

// largeLoop is a trace of about 15 000 births in each of five windows, in as many layers as a large model has.
func largeLoop(b *testing.B) []byte {
	b.Helper()
	f := newFakeLoop(1650)
	for _, s := range []Shape{usual[0], usual[1], usual[2], usual[3], usual[4]} {
		f.window(s, 1)
	}
	data, err := f.t.Encode()
	if err != nil {
		b.Fatal(err)
	}
	return data
}

func largeModel(b *testing.B) *Model {
	b.Helper()
	trace, err := Decode(largeLoop(b))
	if err != nil {
		b.Fatal(err)
	}
	m, err := New(trace)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkOpen reads and fits a trace: 150 ms at most.
func BenchmarkOpen(b *testing.B) {
	data := largeLoop(b)
	b.ReportMetric(float64(len(data)), "bytes")
	for b.Loop() {
		trace, err := Decode(data)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := New(trace); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSimulate plays three steps at another shape; the figure to hold is 5 ms for a step of 15 000 events.
func BenchmarkSimulate(b *testing.B) {
	m := largeModel(b)
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
	b.ReportMetric(float64(eventsOf(plan)), "events")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(eventsOf(plan)), "ns/event")
}

// BenchmarkRun plays 60 steps in 2 orders: a fifth and two fifths of what is usual.
func BenchmarkRun(b *testing.B) {
	m := largeModel(b)
	lengths, labels := someLengths(1000)
	for b.Loop() {
		if _, err := m.Run(RunRequest{Lengths: lengths, Labels: labels, Batch: 8, Steps: 60, Seeds: 2}); err != nil {
			b.Fatal(err)
		}
	}
}
