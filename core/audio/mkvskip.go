package audio

import "bytes"

const (
	// wholeWalk is the size of a file up to which every block is looked at. In a larger one, whose clusters say their sizes, the
	// first and the last cluster tell.
	wholeWalk   = 1 << 20
	maxClusters = 1 << 16
)

var clusterMagic = be.AppendUint32(nil, idCluster)

// skipping is what was left out of a walk.
type skipping struct {
	passed []element // clusters not looked into
	near   int       // how many of them lie before the jump to the end of the file; 0 without one
	jumped bool      // a jump was tried
	blocks int64     // of the track, since the last cluster that was passed
}

// enters says whether to look into a cluster.
func (m *matroska) enters(e element) bool {
	if m.every || !m.any || e.open || e.cut || len(m.passed) >= maxClusters {
		return true
	}
	m.w.step = hopLen
	m.passed, m.blocks = append(m.passed, e), 0
	return false
}

// jump gives the offset at which to go on behind a cluster that was passed: for the first one that is the last cluster, where
// it is found near the end.
func (m *matroska) jump(e element, end int64) int64 {
	if m.jumped {
		return e.end
	}
	m.jumped = true
	for _, n := range [...]int64{64 << 10, 1 << 20} {
		off := max(e.end, end-n)
		m.w.off, m.w.b = off, m.w.s.at(off, int(end-off))
		for i := len(m.w.b); i > 0 && m.w.hop(); {
			if i = bytes.LastIndex(m.w.b[:i], clusterMagic); i >= 0 && m.startsCluster(off+int64(i), end) {
				m.near = len(m.passed)
				return off + int64(i)
			}
		}
		if off == e.end {
			break
		}
	}
	return e.end
}

// startsCluster says whether the bytes at off, which look like the ID of a cluster, are one: its clock comes first, or after a
// checksum, and behind it another element or the end.
func (m *matroska) startsCluster(off, end int64) bool {
	e, ok := m.w.element(off, end)
	if !ok || e.open || e.cut && !m.cut {
		return false
	}
	first, ok := m.w.element(e.body, e.end)
	if ok && first.id == idChecksum {
		first, ok = m.w.element(first.end, e.end)
	}
	if !ok || first.id != idTimestamp || first.size() > 8 {
		return false
	}
	_, ok = m.w.element(e.end, end)
	return ok || e.end == end
}

// lastCluster looks into the clusters that were passed, from the last one back, until one holds a block of the track. Where
// none behind the jump does, the segment is walked cluster by cluster.
func (m *matroska) lastCluster(end int64) error {
	m.w.step = windowLen
	for {
		for i := len(m.passed) - 1; i >= m.near && m.blocks == 0; i-- {
			if err := m.walk(m.passed[i].body, m.passed[i].end); err != nil {
				return err
			}
		}
		if m.near == 0 || m.blocks > 0 {
			return nil
		}
		m.passed, m.near = m.passed[:m.near], 0
		if err := m.walk(m.passed[len(m.passed)-1].end, end); err != nil {
			return err
		}
	}
}
