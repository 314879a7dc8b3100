package memory

import (
	"runtime"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// inParallel runs n jobs on all cores and gives the first error. A panic in one poisons the library, as anywhere.
func inParallel(n int, job func(i int) error) error {
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
			err = fault.Poison("memory run", p)
		}
	}()
	return job()
}
