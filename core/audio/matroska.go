package audio

import "math"

// IDs of elements. Source: RFC 9559, section 5.1.
const (
	idEBML          = 0x1a45dfa3
	idSegment       = 0x18538067
	idInfo          = 0x1549a966
	idScale         = 0x2ad7b1
	idDuration      = 0x4489
	idTracks        = 0x1654ae6b
	idCluster       = 0x1f43b675
	idChecksum      = 0xbf
	idTimestamp     = 0xe7
	idSimpleBlock   = 0xa3
	idBlockGroup    = 0xa0
	idBlock         = 0xa1
	idBlockDuration = 0x9b
	idDiscard       = 0x75a2
)

const (
	defaultScale = 1_000_000 // ns in a tick
	nanos        = 1e9
)

// matroska is what is known of a file while its segment is walked.
type matroska struct {
	w       ebmlReader
	scale   float64 // ns in a tick
	claimed float64 // s that the header claims, 0 for nothing
	track   *mkvTrack
	others  int       // tracks that are not it
	frames  []element // of the block looked at
	every   bool      // look at every block
	cut     bool      // something that was told of is missing
	cluster float64   // ticks at which the cluster starts
	heard
	skipping
}

// heard is what the blocks of the track that were looked at add up to.
type heard struct {
	samples int64   // that a decoder makes of them
	unknown bool    // there were blocks that do not tell
	discard int64   // samples to drop at their ends
	any     bool    // there was one
	mute    bool    // none of them gave samples, as the first one of Vorbis does not
	first   float64 // s at which the first starts
	end     float64 // s at which the last one ends
}

// parseMatroska counts the blocks of the first audio track: what the header claims is rounded, leaves out what decoders drop,
// is about the longest track, and is missing from live recordings. Source: RFC 9559.
func parseMatroska(s *source, base int64) (Info, error) {
	m := &matroska{w: ebmlReader{newWindow(s)}}
	head, ok := m.w.element(base, s.size)
	if !ok || head.cut || head.open {
		return Info{}, corrupt("ends inside its EBML header")
	}
	var segment element
	for off := head.end; ; off = segment.end {
		if segment, ok = m.w.element(off, s.size); !ok || !m.w.spend(stepsHead) {
			return Info{}, corrupt("ends before its segment, which holds everything")
		}
		if segment.id == idSegment {
			break
		}
	}
	m.every = s.size <= wholeWalk
	info, err := m.segment(segment)
	if m.w.steps < 0 {
		return Info{}, m.w.spent()
	}
	return info, err
}

// segment walks the segment, and once more where its first and last blocks contradict its header.
func (m *matroska) segment(e element) (Info, error) {
	m.scale, m.cut = defaultScale, e.cut
	if err := m.walk(e.body, e.end); err != nil {
		return Info{}, err
	}
	if m.track == nil {
		if m.cut {
			return Info{}, corrupt("ends before its tracks")
		}
		return Info{}, corrupt("holds no audio track")
	}
	if err := m.lastCluster(e.end); err != nil {
		return Info{}, err
	}
	if m.skipped && (m.blocks == 0 || m.contradicted() || !m.plausible()) {
		m.every, m.heard, m.skipping = true, heard{}, skipping{}
		if err := m.walk(e.body, e.end); err != nil {
			return Info{}, err
		}
	}
	return m.length()
}

// walk looks at the elements from off to end. Clusters and what is in them are taken as one row: a live recording does not
// say where its clusters end.
func (m *matroska) walk(off, end int64) error {
	for off < end && m.w.spend(stepsHead) {
		e, ok := m.w.element(off, end)
		if !ok {
			m.cut = true
			break
		}
		off = e.end
		switch e.id {
		case idInfo:
			m.info(e)
		case idTracks:
			if err := m.tracks(e); err != nil {
				return err
			}
		case idCluster:
			off = m.enter(e, end)
		case idTimestamp:
			m.cluster = float64(m.w.number(e))
		case idSimpleBlock:
			m.block(e, 0, 0)
		case idBlockGroup:
			m.group(e)
		case idEBML, idSegment: // another document
			return nil
		default:
			if e.open {
				return nil
			}
		}
		m.cut = m.cut || e.cut
	}
	return nil
}

// info reads the clock and the length that the header claims.
func (m *matroska) info(e element) {
	var ticks float64
	for c := range m.w.elements(e) {
		switch c.id {
		case idScale:
			m.scale = max(1, float64(m.w.number(c)))
		case idDuration:
			ticks = m.w.real(c)
		}
	}
	m.claimed = max(0, ticks*m.scale/nanos)
}

// contradicted says whether the header claims another length than the end of the last block, of a file that holds only sound.
func (m *matroska) contradicted() bool {
	return m.others == 0 && !m.cut && m.claimed > 0 && (m.claimed > m.end+claimSlack || m.claimed < m.end-claimSlack)
}

// plausible says whether so many bytes can hold as much sound as first and last block say: 120 ms of Opus take some bytes.
func (m *matroska) plausible() bool { return (m.end-m.first)/0.12 <= float64(m.w.s.size)/4 }

// length puts together what the file holds.
func (m *matroska) length() (Info, error) {
	t := m.track
	rate := float64(t.info.SampleRate)
	if m.unknown && m.claimed > m.end && m.others == 0 && !m.cut {
		m.end, t.info.Method = m.claimed, "header"
	}
	if (m.unknown || m.skipped) && !m.plausible() {
		return Info{}, corrupt("ends after %.0f s, more than %d bytes can hold", m.end, m.w.s.size)
	}
	held := int64((m.end-m.first)*rate + 0.5)
	switch {
	case t.info.Method == "header":
	case m.skipped:
		t.info.Method = "tail"
		held = t.packets.snap((m.end-m.first)*rate, 1.5*rate*max(m.scale/nanos, 0.001))
	default:
		t.info.Method = "walked"
		if !m.unknown {
			held = m.samples
		}
	}
	held -= min(held, t.skip()+m.discard)
	return finish(t.info, held, m.otherClaim(rate))
}

// otherClaim gives the samples that the header claims, 0 where that is what the file holds, but for rounding. In a film it may
// be the pictures that last longer.
func (m *matroska) otherClaim(rate float64) int64 {
	slack := claimSlack
	if m.cut {
		slack = 0.002
	}
	if m.claimed <= 0 || m.claimed > maxTicks/rate || m.others > 0 && !m.cut || math.Abs(m.claimed-m.end) <= slack {
		return 0
	}
	return int64(m.claimed * rate)
}
