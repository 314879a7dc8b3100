package audio

import "github.com/asrconfig/asrconfig-go/core/fault"

// Section reads the encoded file that lies in size bytes from start on of the regular file at path: a member of a tar
// archive, which need not be unpacked. name is for the messages. What lies behind the end of the file is missing from it,
// as from any truncated file. Errors are those of File.
func Section(path, name string, start, size int64) (Info, error) {
	s := sources.Get().(*source)
	defer sources.Put(s)
	s.section(start, size)
	defer s.section(0, 0)
	st := unknownStat
	if err := s.open(path, false, firstRead[ending(path)], &st); err != nil {
		return Info{}, named(name, missing(err))
	}
	defer s.close()
	info, err := parse(s)
	if s.err != nil {
		err = refused(fault.NotFound, "check the disk and the mount", "cannot be read: %w", s.err)
	}
	if err != nil {
		return Info{}, named(name, err)
	}
	return info, nil
}
