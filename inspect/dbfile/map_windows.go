package dbfile

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapFile maps the first size bytes of f. Windows refuses to cut a mapped file
// short, so reading it cannot fault.
func mapFile(f *os.File, size int64) (data []byte, unmap func() error, err error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, uint32(size>>32), uint32(size), nil)
	if err != nil {
		return nil, nil, os.NewSyscallError("CreateFileMapping", err)
	}
	// A view keeps its mapping alive; the handle is not needed any more.
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// The view is memory that the collector does not own and cannot move; the
	// conversion goes through a pointer to the address to say so to vet.
	data = unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), int(size))
	return data, func() error { return os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(addr)) }, nil
}
