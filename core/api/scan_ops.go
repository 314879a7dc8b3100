package api

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/asrconfig/asrconfig-go/core/dataset"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// A scan is start / poll / result / cancel: a single long call would keep Ctrl-C and the progress
// bar waiting. A source that comes in pieces is open / add, poll / … / end, poll / result / cancel.
type scanJob struct {
	ctx        context.Context
	cancel     context.CancelFunc
	progress   dataset.Progress
	collection *dataset.Collection // of a job that was opened

	mu       sync.Mutex
	done     chan struct{}  // of the latest stage; closed when that has ended
	result   dataset.Result // like the rest, of the latest stage; written before done is closed
	err      error
	borrowed bool // it reads memory of the caller
}

func newScanJob() *scanJob {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	close(done)
	return &scanJob{ctx: ctx, cancel: cancel, done: done}
}

var scans registry[*scanJob]

const (
	maxPollWait   = time.Second
	maxClipsAPage = 1 << 20
)

type scanArgs struct {
	dataset.Request
	Arrow *arrowArgs `json:"arrow"`
}

// attach takes more paths, each ended by a zero byte, after those in the JSON.
func (a *scanArgs) attach(b []byte) error {
	if len(b) > 0 && b[len(b)-1] != 0 {
		return fault.New(fault.InvalidArgument, "end each path with a zero byte",
			"the last attached path is truncated")
	}
	all := string(b) // one copy, of which each path is a part
	a.Paths = slices.Grow(a.Paths, strings.Count(all, "\x00"))
	for len(all) > 0 {
		path, others, _ := strings.Cut(all, "\x00")
		a.Paths, all = append(a.Paths, path), others
	}
	return nil
}

// bufferArgs is memory of the caller, which keeps it alive and unchanged until the scan is over.
type bufferArgs struct {
	Name    string  `json:"-"` // for messages
	Address uintptr `json:"address"`
	Size    int     `json:"size"` // bytes
}

// startScan begins to list and measure audio: a folder, files, a manifest, shards or an Arrow
// column. scan.poll reports when it is done.
func startScan(a scanArgs) (jobRef, error) {
	var err error
	if a.Request.Arrow, err = a.Arrow.view(); err != nil {
		return jobRef{}, err
	}
	job := newScanJob()
	if err := job.run(a.Arrow != nil, func() (dataset.Result, error) {
		return dataset.Scan(job.ctx, a.Request, &job.progress)
	}); err != nil {
		return jobRef{}, err
	}
	return jobRef{scans.add(job)}, nil
}

// openScan starts a scan whose clips come in pieces, by scan.add.
func openScan(o dataset.Options) (jobRef, error) {
	if err := o.Check(); err != nil {
		return jobRef{}, err
	}
	job := newScanJob()
	job.collection = dataset.NewCollection(o)
	return jobRef{scans.add(job)}, nil
}

type addArgs struct {
	openedRef
	dataset.Piece
	Rows  []rowArgs  `json:"rows"` // in order
	Arrow *arrowArgs `json:"arrow"`
}

// rowArgs is a clip, which is measured unless it has a duration or an error already.
type rowArgs struct {
	profile.Clip
	Buffer *bufferArgs `json:"buffer"` // an encoded file in memory; absent: the file at path
}

// attach takes the columns of the page.
func (a *addArgs) attach(b []byte) error {
	if len(b) > 0 && a.Page == nil {
		return fault.New(fault.InvalidArgument, "pass the page that they belong to",
			"%d bytes of columns without a page", len(b))
	}
	a.Columns = slices.Clone(b)
	return nil
}

// addToScan begins to measure a piece, or to take over a page of scan.clips of another scan with
// its columns after the zero byte of the request; scan.poll reports when it is done.
func addToScan(job *scanJob, a addArgs) (_ struct{}, err error) {
	if a.Piece.Arrow, err = a.Arrow.view(); err != nil {
		return struct{}{}, err
	}
	borrowed := a.Arrow != nil
	for _, row := range a.Rows {
		var data []byte
		if row.Buffer != nil {
			borrowed, row.Buffer.Name = true, row.Path
			if data, err = row.Buffer.bytes(); err != nil {
				return struct{}{}, err
			}
		}
		a.Piece.Rows = append(a.Piece.Rows, dataset.PieceRow{Clip: row.Clip, Data: data})
	}
	return struct{}{}, job.run(borrowed, func() (dataset.Result, error) {
		return dataset.Result{}, job.collection.Add(job.ctx, &a.Piece, &job.progress)
	})
}

type endArgs struct {
	openedRef
	dataset.Ending
}

// endScan begins to sum up what was added; scan.poll reports when that is done.
func endScan(job *scanJob, a endArgs) (struct{}, error) {
	return struct{}{}, job.run(false, func() (dataset.Result, error) {
		return job.collection.Finish(job.ctx, a.Ending)
	})
}

// openedRef is a scan that was opened.
type openedRef struct{ jobRef }

func (r openedRef) found() (*scanJob, error) {
	job, err := r.jobRef.found()
	if err == nil && job.collection == nil {
		err = fault.New(fault.InvalidArgument, "create the scan with scan.open",
			"scan %d does not accept pieces", r.Job)
	}
	return job, err
}

// bytes views the caller's memory. The address comes from ctypes, so the garbage collector has no
// say in it; the conversion goes through a pointer to the integer because vet cannot know that.
func (b bufferArgs) bytes() ([]byte, error) {
	if b.Size == 0 {
		return []byte{}, nil
	}
	if b.Address == 0 || b.Size < 0 {
		return nil, fault.New(fault.InvalidArgument, "pass the address and size of a live buffer",
			"buffer %q: address %#x, size %d", b.Name, b.Address, b.Size)
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&b.Address)), b.Size), nil
}

// run begins the next stage. The error is that the one before has not ended, or has failed.
func (j *scanJob) run(borrowed bool, stage func() (dataset.Result, error)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !ended(j.done) {
		return fault.New(fault.InvalidArgument, "poll until it has finished",
			"the scan is still running")
	}
	if j.err != nil {
		return j.err
	}
	done := make(chan struct{})
	j.done, j.borrowed = done, borrowed
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				j.err = fault.Poison("scan", p)
			}
		}()
		j.result, j.err = stage()
	}()
	return nil
}

// latest returns what tells the end of the latest stage, and whether that reads memory of the
// caller.
func (j *scanJob) latest() (done <-chan struct{}, borrowed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.done, j.borrowed
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

type pollArgs struct {
	jobRef
	WaitMS int `json:"wait_ms"` // how long to wait for the end, at most one second
}

type scanProgress struct {
	Finished bool  `json:"finished"`
	Total    int64 `json:"total"` // clips found so far
	Done     int64 `json:"done"`
	Bad      int64 `json:"bad"` // of those done, the unusable
}

// pollScan waits for the end of what the scan does, and says how far it is.
func pollScan(job *scanJob, a pollArgs) (scanProgress, error) {
	wait := time.NewTimer(min(time.Duration(max(a.WaitMS, 0))*time.Millisecond, maxPollWait))
	defer wait.Stop()
	finished := false
	done, _ := job.latest()
	select {
	case <-done:
		finished = true
	case <-wait.C:
	}
	p := &job.progress
	return scanProgress{Finished: finished, Total: p.Total.Load(), Done: p.Done.Load(),
		Bad: p.Bad.Load()}, nil
}

// scanResult returns the profile of a finished scan; its clips come by scan.clips, in pages.
func scanResult(job *scanJob, _ finishedRef) (profile.Dataset, error) {
	return job.result.Profile, nil
}

type clipsArgs struct {
	finishedRef
	Offset int `json:"offset"`
	Limit  int `json:"limit"` // at most maxClipsAPage are given
}

// within returns where the page of a list of so many lies.
func (a clipsArgs) within(count int) (from, to int, err error) {
	if a.Offset < 0 || a.Limit < 1 {
		return 0, 0, fault.New(fault.InvalidArgument, "offset counts from 0, limit from 1",
			"offset %d, limit %d", a.Offset, a.Limit)
	}
	from = min(a.Offset, count)
	return from, from + min(a.Limit, maxClipsAPage, count-from), nil
}

// scanClips returns a page of clips. Behind the zero byte of the answer: the page's columns,
// little-endian, one number for each clip: seconds (float64, NaN of a bad clip), bytes (int64),
// digest (uint64), kind (uint32, index in the list of kinds), characters of the path (uint32); then
// the paths in UTF-8.
func scanClips(job *scanJob, a clipsArgs) (attachment[dataset.Page], error) {
	from, to, err := a.within(job.result.Clips.Len())
	if err != nil {
		return attachment[dataset.Page]{}, err
	}
	page := job.result.Clips.Page(from, to-from)
	return attachment[dataset.Page]{page, page.Size(), page.Write}, nil
}

// finishedRef is a scan that has ended.
type finishedRef struct{ jobRef }

// found returns a scan that has ended well, or its error.
func (r finishedRef) found() (*scanJob, error) {
	job, err := r.jobRef.found()
	if err != nil {
		return nil, err
	}
	if done, _ := job.latest(); !ended(done) {
		return nil, fault.New(fault.InvalidArgument, "poll until it has finished",
			"scan %d is still running", r.Job)
	}
	if job.err == nil && job.result.Clips == nil {
		return nil, fault.New(fault.InvalidArgument, "call scan.end first", "scan %d has not ended",
			r.Job)
	}
	return job, job.err
}

// scanTexts returns what is said in clips from an offset on, of a scan with texts; null where that
// is not known.
func scanTexts(job *scanJob, a clipsArgs) ([]*string, error) {
	from, to, err := a.within(len(job.result.Texts))
	if err != nil {
		return nil, err
	}
	return job.result.Texts[from:to], nil
}

type tablePage struct {
	Columns []string           `json:"columns"` // of the whole table
	Rows    []dataset.TableRow `json:"rows"`
}

// scanRows returns the rows of a manifest from an offset on, of a scan that lists them; others have
// none.
func scanRows(job *scanJob, a clipsArgs) (tablePage, error) {
	table := job.result.Table
	if table == nil {
		table = new(dataset.Table)
	}
	from, to, err := a.within(len(table.Rows))
	if err != nil {
		return tablePage{}, err
	}
	return tablePage{table.Columns, table.Rows[from:to]}, nil
}

type jobRef struct {
	Job uint64 `json:"job"`
}

func (r jobRef) found() (*scanJob, error) { return scans.get(r.Job, "scan") }

// cancelScan stops a running scan and forgets it; a finished one is released by it. It waits for
// the goroutine only when that reads the caller's buffers: summing up millions of clips takes
// longer than a person who pressed Ctrl-C waits.
func cancelScan(job *scanJob, a jobRef) (struct{}, error) {
	job.cancel()
	done, borrowed := job.latest()
	if borrowed {
		<-done
	}
	scans.remove(a.Job)
	if ended(done) && job.result.Clips != nil {
		dataset.ReturnMemory(job.result.Clips.Len()) // with those of the job, which nobody has now
	}
	return struct{}{}, nil
}
