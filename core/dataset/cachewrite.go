package dataset

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	lockName = "durations.lock"
	lockWait = 2 * time.Second // another scan holds it for milliseconds; a stopped process may hold it for ever
)

// store writes slots into the table of a folder, which it makes, repairs or enlarges as needed.
func store(ctx context.Context, folder string, raw []byte) error {
	unlock, err := lock(ctx, filepath.Join(folder, lockName))
	if err != nil {
		return err
	}
	defer unlock()
	var slots [][]byte
	for slot := range slices.Chunk(raw, slotSize) {
		slots = append(slots, slot)
	}
	slices.SortStableFunc(slots, func(a, b []byte) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	path := filepath.Join(folder, tableName)
	for range maxTableBits + 2 {
		if err = storeOnce(path, slots); !errors.Is(err, errFull) {
			return err
		}
	}
	return err
}

// storeOnce writes the slots, or doubles the table and says errFull.
func storeOnce(path string, slots [][]byte) error {
	t, err := openTable(path, os.O_RDWR)
	if errors.Is(err, errNoTable) || errors.Is(err, os.ErrNotExist) { // none, or cut short, or of another version
		if err = newTable(path, nil); err == nil {
			t, err = openTable(path, os.O_RDWR)
		}
	}
	if err != nil {
		return err
	}
	defer t.file.Close()
	if err = t.insert(slots); errors.Is(err, errFull) {
		if failed := newTable(path, t); failed != nil {
			return failed
		}
	}
	return err
}

var errLocked = errors.New("the cache is in use")

// lock takes the lock of a cache's folder. The system gives it back when the process ends, however it ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|inPlace, 0o600)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(lockWait)
	for {
		busy, err := tryLock(f)
		switch {
		case err != nil:
			f.Close()
			return nil, err
		case !busy:
			return func() { f.Close() }, nil
		case time.Now().After(until) || ctx.Err() != nil:
			f.Close()
			return nil, errLocked
		}
		time.Sleep(5 * time.Millisecond)
	}
}
