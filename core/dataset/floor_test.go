package dataset

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func cpuTime() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func BenchmarkFloor(b *testing.B) {
	files := map[string][]byte{}
	for i := range 20000 {
		files[fmt.Sprintf("%02d/%05d.wav", i%40, i)] = noisy(16000, byte(i))
	}
	root := tree(b, files)
	folder := b.TempDir()
	entries, _ := listFolder(context.Background(), root)
	bench := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			best, wall := 1e9, 1e9
			for b.Loop() {
				c, t := cpuTime(), time.Now()
				f()
				best, wall = min(best, cpuTime()-c), min(wall, time.Since(t).Seconds())
			}
			b.ReportMetric(best/20000*1e6, "cpu-µs/file")
			b.ReportMetric(wall/20000*1e6, "wall-µs/file")
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, workers := range []int{2} {
		bench(fmt.Sprintf("floor/%d", workers), func() {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					var buf [4096]byte
					var st syscall.Stat_t
					for {
						lo := int(next.Add(64)) - 64
						if lo >= len(entries) {
							return
						}
						for _, e := range entries[lo:min(lo+64, len(entries))] {
							fd, _ := syscall.Open(e.path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
							syscall.Fstat(fd, &st)
							syscall.Pread(fd, buf[:], 0)
							syscall.Close(fd)
						}
					}
				}()
			}
			wg.Wait()
		})
		bench(fmt.Sprintf("floor8K/%d", workers), func() {
			var next atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					var buf [8192]byte
					var st syscall.Stat_t
					for {
						lo := int(next.Add(64)) - 64
						if lo >= len(entries) {
							return
						}
						for _, e := range entries[lo:min(lo+64, len(entries))] {
							fd, _ := syscall.Open(e.path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
							syscall.Fstat(fd, &st)
							syscall.Pread(fd, buf[:], 0)
							syscall.Close(fd)
						}
					}
				}()
			}
			wg.Wait()
		})
		bench(fmt.Sprintf("scan/%d", workers), func() {
			Scan(context.Background(), Request{Folder: root, Options: Options{Workers: workers}}, nil)
		})
		bench(fmt.Sprintf("measure/%d", workers), func() {
			NewCollection(Options{Workers: workers}).measure(context.Background(), entries, nil)
		})
		bench(fmt.Sprintf("cached/%d", workers), func() {
			Scan(context.Background(), Request{Folder: root, Options: Options{Workers: workers, Cache: Cache{Folder: folder}}}, nil)
		})
	}
	bench("list", func() { listFolder(context.Background(), root) })
	r, _ := Scan(context.Background(), Request{Folder: root}, nil)
	bench("sum", func() { Summarize(r.Clips, "", nil, Options{}) })
}
