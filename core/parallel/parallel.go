// Package parallel runs jobs on all cores.
package parallel

import (
	"runtime"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// Do runs n jobs and gives the first error. A panic in one poisons the library, as anywhere.
func Do(n int, job func(i int) error) error {
	errs := make([]error, n)
	var workers sync.WaitGroup
	indices := make(chan int)
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range indices {
				errs[i] = recovered(func() error { return job(i) })
			}
		}()
	}
	for i := range n {
		indices <- i
	}
	close(indices)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func recovered(job func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Poison("parallel job", p)
		}
	}()
	return job()
}
