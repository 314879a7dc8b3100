package api

import (
	"context"
	"time"
	"unsafe"

	"github.com/asrconfig/asrconfig-go/core/dataset"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// A scan is start / poll / result / cancel: a single long call would keep Ctrl-C and the progress bar waiting.
type scanJob struct {
	cancel   context.CancelFunc
	done     chan struct{}
	progress dataset.Progress
	result   dataset.Result // written before done is closed
	err      error
	borrowed bool // it reads memory of the caller
}

var scans registry[*scanJob]

const (
	maxPollWait   = time.Second
	maxClipsAPage = 1 << 20
)

type scanArgs struct {
	dataset.Request
	Buffers []bufferArgs `json:"buffers"`
}

// bufferArgs is memory of the caller, which keeps it alive and unchanged until the scan is over.
type bufferArgs struct {
	Name    string  `json:"name"`
	Address uintptr `json:"address"`
	Size    int     `json:"size"` // bytes
}

func startScan(a scanArgs) (any, error) {
	for _, b := range a.Buffers {
		data, err := b.bytes()
		if err != nil {
			return nil, err
		}
		a.Request.Buffers = append(a.Request.Buffers, dataset.Buffer{Name: b.Name, Data: data})
	}
	ctx, cancel := context.WithCancel(context.Background())
	job := &scanJob{cancel: cancel, done: make(chan struct{}), borrowed: len(a.Buffers) > 0}
	handle := scans.add(job)
	go job.run(func(p *dataset.Progress) (dataset.Result, error) { return dataset.Scan(ctx, a.Request, p) })
	return map[string]any{"job": handle}, nil
}

// bytes views the caller's memory. The address comes from ctypes, so the garbage collector has no say in it; the
// conversion goes through a pointer to the integer because vet cannot know that.
func (b bufferArgs) bytes() ([]byte, error) {
	if b.Size == 0 {
		return []byte{}, nil
	}
	if b.Address == 0 || b.Size < 0 {
		return nil, fault.New(fault.InvalidArgument, "pass the address and size of a live buffer", "buffer %q: address %#x, size %d", b.Name, b.Address, b.Size)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&b.Address)), b.Size), nil
}

func (j *scanJob) run(scan func(*dataset.Progress) (dataset.Result, error)) {
	defer close(j.done)
	defer func() {
		if p := recover(); p != nil {
			j.err = fault.Poison("scan", p)
		}
	}()
	j.result, j.err = scan(&j.progress)
}

type pollArgs struct {
	Job    uint64 `json:"job"`
	WaitMS int    `json:"wait_ms"` // how long to wait for the end, at most one second
}

func pollScan(a pollArgs) (any, error) {
	job, err := scans.get(a.Job, "scan")
	if err != nil {
		return nil, err
	}
	wait := time.NewTimer(min(time.Duration(max(a.WaitMS, 0))*time.Millisecond, maxPollWait))
	defer wait.Stop()
	finished := false
	select {
	case <-job.done:
		finished = true
	case <-wait.C:
	}
	return map[string]any{
		"finished": finished, "total": job.progress.Total.Load(), "done": job.progress.Done.Load(), "bad": job.progress.Bad.Load(),
	}, nil
}

// scanResult gives the profile of a finished scan; its clips come by scan.clips, in pages.
func scanResult(a jobArgs) (any, error) {
	job, err := finishedScan(a.Job)
	if err != nil {
		return nil, err
	}
	return job.result.Profile, nil
}

type clipsArgs struct {
	Job    uint64 `json:"job"`
	Offset int    `json:"offset"`
	Limit  int    `json:"limit"` // at most maxClipsAPage are given
}

// scanClips gives clips from an offset on, in source order; none past the end.
func scanClips(a clipsArgs) (any, error) {
	job, err := finishedScan(a.Job)
	if err != nil {
		return nil, err
	}
	if a.Offset < 0 || a.Limit < 1 {
		return nil, fault.New(fault.InvalidArgument, "offset counts from 0, limit from 1", "offset %d, limit %d", a.Offset, a.Limit)
	}
	clips := job.result.Clips
	from := min(a.Offset, len(clips))
	return clips[from : from+min(a.Limit, maxClipsAPage, len(clips)-from)], nil
}

// finishedScan gives a scan that has ended well, or its error.
func finishedScan(handle uint64) (*scanJob, error) {
	job, err := scans.get(handle, "scan")
	if err != nil {
		return nil, err
	}
	select {
	case <-job.done:
		return job, job.err
	default:
		return nil, fault.New(fault.InvalidArgument, "poll until it has finished", "scan %d is still running", handle)
	}
}

type jobArgs struct {
	Job uint64 `json:"job"`
}

// cancelScan stops a running scan and forgets it; a finished one is released by it. It waits for the goroutine only when
// that reads the caller's buffers: summing up millions of clips takes longer than a person who pressed Ctrl-C waits.
func cancelScan(a jobArgs) (any, error) {
	job, err := scans.get(a.Job, "scan")
	if err != nil {
		return nil, err
	}
	job.cancel()
	if job.borrowed {
		<-job.done
	}
	scans.remove(a.Job)
	return struct{}{}, nil
}
