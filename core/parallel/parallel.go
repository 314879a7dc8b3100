// Package parallel runs jobs on all cores.
package parallel

import (
	"cmp"
	"runtime"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Do runs n jobs, one on each core, and gives the first error. A panic in one poisons the library,
// as anywhere.
func Do(n int, job func(i int) error) error { return By(runtime.GOMAXPROCS(0), n, job) }

// By does the same with so many workers, for jobs that wait for a disk.
func By(workers, n int, job func(i int) error) error {
	errs := make([]error, n)
	var wait sync.WaitGroup
	indices := make(chan int)
	for range min(n, workers) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := range indices {
				errs[i] = recovered(func() error { return job(i) })
			}
		}()
	}
	for i := range n {
		indices <- i
	}
	close(indices)
	wait.Wait()
	return cmp.Or(errs...)
}

func recovered(job func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Poison("parallel job", p)
		}
	}()
	return job()
}
