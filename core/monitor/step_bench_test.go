package monitor

import (
	"testing"
	"time"
)

func benched(b *testing.B, interval time.Duration) *Monitor {
	b.Helper()
	m, err := Start(Config{GPU: &fakeGPUs{used: make([]uint64, 8)}, Host: steadyHost, Interval: interval})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Stop)
	return m
}

// BenchmarkRead is what a training step pays, with the sampler at its usual pace.
func BenchmarkRead(b *testing.B) {
	m := benched(b, 100*time.Millisecond)
	var s Stats
	b.ReportAllocs()
	for b.Loop() {
		m.Read(&s)
	}
}

func BenchmarkReadParallel(b *testing.B) {
	m := benched(b, MinInterval)
	b.RunParallel(func(pb *testing.PB) {
		var s Stats
		for pb.Next() {
			m.Read(&s)
		}
	})
}

// BenchmarkSample is the sampler's own work for 8 GPUs, without that of the driver and of /proc.
func BenchmarkSample(b *testing.B) {
	m := benched(b, MaxInterval)
	b.ReportAllocs()
	for b.Loop() {
		m.sample()
	}
}

func BenchmarkHistory(b *testing.B) {
	m := filled(maxPoints, 5, 99)
	b.ReportAllocs()
	for b.Loop() {
		m.History(500)
	}
}
