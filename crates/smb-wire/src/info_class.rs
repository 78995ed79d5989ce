//! Information classes of files (MS-FSCC 2.4) and filesystems (MS-FSCC 2.5), as QUERY_INFO, SET_INFO
//! and QUERY_DIRECTORY have them.

use crate::file_info::{DirEntry, FileInfo, StreamInfo};
use crate::text::utf16le;

pub const FILE_DIRECTORY_INFORMATION: u8 = 0x01;
pub const FILE_FULL_DIRECTORY_INFORMATION: u8 = 0x02;
pub const FILE_BOTH_DIRECTORY_INFORMATION: u8 = 0x03;
pub const FILE_BASIC_INFORMATION: u8 = 0x04;
pub const FILE_STANDARD_INFORMATION: u8 = 0x05;
pub const FILE_INTERNAL_INFORMATION: u8 = 0x06;
pub const FILE_EA_INFORMATION: u8 = 0x07;
pub const FILE_ACCESS_INFORMATION: u8 = 0x08;
pub const FILE_NAME_INFORMATION: u8 = 0x09;
pub const FILE_NAMES_INFORMATION: u8 = 0x0C;
pub const FILE_POSITION_INFORMATION: u8 = 0x0E;
pub const FILE_FULL_EA_INFORMATION: u8 = 0x0F;
pub const FILE_MODE_INFORMATION: u8 = 0x10;
pub const FILE_ALIGNMENT_INFORMATION: u8 = 0x11;
pub const FILE_ALL_INFORMATION: u8 = 0x12;
pub const FILE_ALLOCATION_INFORMATION: u8 = 0x13;
pub const FILE_END_OF_FILE_INFORMATION: u8 = 0x14;
pub const FILE_ALTERNATE_NAME_INFORMATION: u8 = 0x15;
pub const FILE_STREAM_INFORMATION: u8 = 0x16;
pub const FILE_DISPOSITION_INFORMATION: u8 = 0x0D;
pub const FILE_RENAME_INFORMATION: u8 = 0x0A;
pub const FILE_LINK_INFORMATION: u8 = 0x0B;
pub const FILE_COMPRESSION_INFORMATION: u8 = 0x1C;
pub const FILE_NETWORK_OPEN_INFORMATION: u8 = 0x22;
pub const FILE_ATTRIBUTE_TAG_INFORMATION: u8 = 0x23;
pub const FILE_NORMALIZED_NAME_INFORMATION: u8 = 0x30;
pub const FILE_ID_BOTH_DIRECTORY_INFORMATION: u8 = 0x25;
pub const FILE_ID_FULL_DIRECTORY_INFORMATION: u8 = 0x26;

/// A structure under construction: fields one after the other, little-endian.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// CreationTime, LastAccessTime, LastWriteTime, ChangeTime.
    fn times(self, info: &FileInfo) -> Self {
        self.u64(info.creation_time).u64(info.last_access_time).u64(info.last_write_time).u64(info.change_time)
    }
}

/// FileBasicInformation (MS-FSCC 2.4.7), 40 bytes.
pub fn encode_file_basic_information(info: &FileInfo) -> Vec<u8> {
    Fields::default().times(info).u32(info.attributes()).u32(0).0
}

/// FileStandardInformation (MS-FSCC 2.4.41), 24 bytes. `links` is NumberOfLinks. DeletePending is
/// set when `delete_pending` is or no link is left (MS-FSA 2.1.5.12.27).
pub fn encode_file_standard_information(info: &FileInfo, links: u32, delete_pending: bool) -> Vec<u8> {
    let flags = [u8::from(delete_pending || links == 0), u8::from(info.is_directory), 0, 0];
    Fields::default().u64(info.allocation_size).u64(info.end_of_file).u32(links).bytes(&flags).0
}

/// FileAllInformation (MS-FSCC 2.4.2): basic, standard, internal, EA, access, position, mode,
/// alignment and name information. `name` is the path from the root of the share, with a backslash
/// first, as Windows and Samba have it.
pub fn encode_file_all_information(
    info: &FileInfo,
    access_mask: u32,
    links: u32,
    delete_pending: bool,
    position: u64,
    extended: u32,
    name: &str,
) -> Vec<u8> {
    Fields::default()
        .bytes(&encode_file_basic_information(info))
        .bytes(&encode_file_standard_information(info, links, delete_pending))
        .u64(info.file_index)
        .u32(extended)
        .u32(access_mask)
        .u64(position)
        .u32(NO_MODE)
        .u32(FILE_BYTE_ALIGNMENT)
        .bytes(&encode_file_name_information(name))
        .0
}

/// FileNameInformation and FileAlternateNameInformation (MS-FSCC 2.4.5).
pub fn encode_file_name_information(name: &str) -> Vec<u8> {
    let name = utf16le(name);
    Fields::default().u32(name.len() as u32).bytes(&name).0
}

/// FileNetworkOpenInformation (MS-FSCC 2.4.30), 56 bytes.
pub fn encode_file_network_open_information(info: &FileInfo) -> Vec<u8> {
    let sizes = Fields::default().times(info).u64(info.allocation_size).u64(info.end_of_file);
    sizes.u32(info.attributes()).u32(0).0
}

/// FileCompressionInformation (MS-FSCC 2.4.9) of a store that compresses nothing, as far as clients
/// are told: CompressionFormat and three shifts are 0.
pub fn encode_file_compression_information(info: &FileInfo) -> Vec<u8> {
    Fields::default().u64(info.end_of_file).u64(0).0
}

/// FileAttributeTagInformation (MS-FSCC 2.4.6); no file is a reparse point.
pub fn encode_file_attribute_tag_information(info: &FileInfo) -> Vec<u8> {
    Fields::default().u32(info.attributes()).u32(0).0
}

/// FileStreamInformation (MS-FSCC 2.4.43): the data of a file is `::$DATA`.
pub fn encode_file_stream_information(streams: &[StreamInfo]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, stream) in streams.iter().enumerate() {
        let start = out.len();
        let name = utf16le(&format!(":{}:$DATA", stream.name));
        out.extend_from_slice(&0u32.to_le_bytes()); // NextEntryOffset
        out.extend_from_slice(&(name.len() as u32).to_le_bytes()); // StreamNameLength
        out.extend_from_slice(&stream.size.to_le_bytes()); // StreamSize
        out.extend_from_slice(&stream.allocation_size.to_le_bytes()); // StreamAllocationSize
        out.extend_from_slice(&name);
        if at + 1 < streams.len() {
            out.resize(align8(out.len()), 0);
            let next = (out.len() - start) as u32;
            out[start..start + 4].copy_from_slice(&next.to_le_bytes());
        }
    }
    out
}

/// Cuts a chain of entries that each begin with NextEntryOffset down to
/// those that fit into `cap` bytes.
pub fn keep_whole_entries(buf: &mut Vec<u8>, cap: usize) {
    let mut last = None;
    let mut at = 0;
    while let Some(next) = buf.get(at..at + 4) {
        let next = u32::from_le_bytes([next[0], next[1], next[2], next[3]]) as usize;
        let end = if next == 0 { buf.len() } else { at + next };
        if end > cap || next == 0 {
            break;
        }
        last = Some(at);
        at = end;
    }
    match last {
        Some(last) => {
            buf.truncate(at);
            buf[last..last + 4].copy_from_slice(&[0; 4]);
        }
        None => buf.clear(),
    }
}

// Of filesystems (MS-FSCC 2.5).
pub const FS_VOLUME_INFORMATION: u8 = 0x01;
pub const FS_SIZE_INFORMATION: u8 = 0x03;
pub const FS_DEVICE_INFORMATION: u8 = 0x04;
pub const FS_ATTRIBUTE_INFORMATION: u8 = 0x05;
pub const FS_CONTROL_INFORMATION: u8 = 0x06;
pub const FS_FULL_SIZE_INFORMATION: u8 = 0x07;
pub const FS_OBJECT_ID_INFORMATION: u8 = 0x08;
pub const FS_SECTOR_SIZE_INFORMATION: u8 = 0x0B;

/// FileModeInformation of an open that was made with none of its flags (MS-FSCC 2.4.24).
pub const NO_MODE: u32 = 0;
/// FileAlignmentInformation: no alignment is required (MS-FSCC 2.4.3).
pub const FILE_BYTE_ALIGNMENT: u32 = 0;

/// Volume serial number of a store that reports none of its own.
pub const VOLUME_SERIAL_NUMBER: u32 = 0xCAFE_BABE;

/// FileFsVolumeInformation (MS-FSCC 2.5.9): SupportsObjects is 0.
pub fn encode_fs_volume_information(creation_time: u64, serial: u32, label: &str) -> Vec<u8> {
    let label = utf16le(label);
    Fields::default().u64(creation_time).u32(serial).u32(label.len() as u32).bytes(&[0; 2]).bytes(&label).0
}

/// FileFsSizeInformation (MS-FSCC 2.5.7), 24 bytes.
pub fn encode_fs_size_information(total_units: u64, free_units: u64, unit_sectors: u32, sector_bytes: u32) -> Vec<u8> {
    Fields::default().u64(total_units).u64(free_units).u32(unit_sectors).u32(sector_bytes).0
}

/// FileFsDeviceInformation (MS-FSCC 2.5.10), 8 bytes.
pub fn encode_fs_device_information(device_type: u32, characteristics: u32) -> Vec<u8> {
    Fields::default().u32(device_type).u32(characteristics).0
}

/// FileFsAttributeInformation (MS-FSCC 2.5.1).
pub fn encode_fs_attribute_information(attributes: u32, component_units_max: u32, name: &str) -> Vec<u8> {
    let name = utf16le(name);
    Fields::default().u32(attributes).u32(component_units_max).u32(name.len() as u32).bytes(&name).0
}

/// FileFsControlInformation (MS-FSCC 2.5.2), 48 bytes: no thresholds of free space, no quotas, no
/// limit by default, no flags.
pub fn encode_fs_control_information() -> Vec<u8> {
    Fields::default().bytes(&[0; 24]).bytes(&[0xFF; 16]).u64(0).0
}

/// FileFsObjectIdInformation (MS-FSCC 2.5.6), 64 bytes: the serial number names the volume; no
/// ExtendedInfo.
pub fn encode_fs_object_id_information(serial: u32) -> Vec<u8> {
    Fields::default().u32(serial).bytes(&[0; 60]).0
}

/// FileFsFullSizeInformation (MS-FSCC 2.5.4), 32 bytes. `free_units` are the caller's.
pub fn encode_fs_full_size_information(
    total_units: u64,
    free_units: u64,
    free_units_of_all: u64,
    unit_sectors: u32,
    sector_bytes: u32,
) -> Vec<u8> {
    let units = Fields::default().u64(total_units).u64(free_units).u64(free_units_of_all);
    units.u32(unit_sectors).u32(sector_bytes).0
}

/// FileFsSectorSizeInformation (MS-FSCC 2.5.8), 28 bytes. Every sector size is `sector_bytes`; device
/// and partition are aligned (SSINFO_FLAGS_ALIGNED_DEVICE, SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE).
pub fn encode_fs_sector_size_information(sector_bytes: u32) -> Vec<u8> {
    let sizes = Fields::default().u32(sector_bytes).u32(sector_bytes).u32(sector_bytes).u32(sector_bytes);
    sizes.u32(3).u64(0).0
}

/// One directory entry in the information class `class` (MS-FSCC 2.4.8, 2.4.14, 2.4.17, 2.4.18,
/// 2.4.26); empty for classes that are no entries'. The caller patches NextEntryOffset.
pub fn encode_dir_entry(class: u8, entry: &DirEntry) -> Vec<u8> {
    let info = &entry.info;
    let (name, file_index) = (utf16le(&info.name), info.file_index);
    let head = Fields::default().u32(0).u32(file_index as u32);
    if class == FILE_NAMES_INFORMATION {
        return head.u32(name.len() as u32).bytes(&name).0;
    }
    let sizes = head.times(info).u64(info.end_of_file).u64(info.allocation_size);
    let fixed = sizes.u32(info.attributes()).u32(name.len() as u32);
    let fixed = match class {
        FILE_DIRECTORY_INFORMATION => fixed,
        // EaSize.
        FILE_FULL_DIRECTORY_INFORMATION => fixed.u32(0),
        // EaSize, ShortNameLength, Reserved1, ShortName.
        FILE_BOTH_DIRECTORY_INFORMATION => fixed.bytes(&[0; 30]),
        // The same, and Reserved2.
        FILE_ID_BOTH_DIRECTORY_INFORMATION => fixed.bytes(&[0; 32]).u64(file_index),
        // EaSize, Reserved.
        FILE_ID_FULL_DIRECTORY_INFORMATION => fixed.u64(0).u64(file_index),
        _ => return Vec::new(),
    };
    fixed.bytes(&name).0
}

/// Offset of FileName in a directory entry of info class `class`: the size
/// of its fixed part. `None` for classes `encode_dir_entry` does not encode.
pub fn dir_entry_name_offset(class: u8) -> Option<usize> {
    Some(match class {
        FILE_DIRECTORY_INFORMATION => 64,
        FILE_FULL_DIRECTORY_INFORMATION => 68,
        FILE_BOTH_DIRECTORY_INFORMATION => 94,
        FILE_NAMES_INFORMATION => 12,
        FILE_ID_BOTH_DIRECTORY_INFORMATION => 104,
        FILE_ID_FULL_DIRECTORY_INFORMATION => 80,
        _ => return None,
    })
}

/// Round up `n` to the next multiple of 8.
pub fn align8(n: usize) -> usize {
    (n + 7) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_info() -> FileInfo {
        FileInfo {
            name: "file.txt".to_string(),
            end_of_file: 100,
            allocation_size: 100,
            creation_time: 0x01D9_0000_0000_0000,
            last_access_time: 0x01D9_0000_0000_0000,
            last_write_time: 0x01D9_0000_0000_0000,
            change_time: 0x01D9_0000_0000_0000,
            is_directory: false,
            read_only: false,
            stored_attributes: 0,
            file_index: 1,
            stream_index: 0,
        }
    }

    #[test]
    fn streams_are_a_chain_that_is_cut_between_entries() {
        let stream = |name: &str, size| StreamInfo { name: name.to_owned(), size, allocation_size: 4096 };
        let whole = encode_file_stream_information(&[stream("", 5), stream("a", 7), stream("Zone.Identifier", 26)]);
        assert_eq!(whole[0..4], 40u32.to_le_bytes());
        assert_eq!(whole[4..8], 14u32.to_le_bytes());
        assert_eq!(whole[8..16], 5u64.to_le_bytes());
        assert_eq!(whole[24..38], *utf16le("::$DATA"));
        assert_eq!(whole[40..44], 40u32.to_le_bytes());
        assert_eq!(whole[80..84], [0; 4]);
        for (cap, kept) in [(whole.len() - 1, 80), (80, 80), (79, 40), (40, 40), (39, 0)] {
            let mut cut = whole.clone();
            keep_whole_entries(&mut cut, cap);
            assert_eq!(cut.len(), kept, "{cap}");
            if kept > 0 {
                assert_eq!(cut[kept - 40..kept - 36], [0; 4]);
            }
        }
    }

    #[test]
    fn basic_information_is_40_bytes() {
        let bytes = encode_file_basic_information(&fake_info());
        assert_eq!(bytes.len(), 40);
    }

    #[test]
    fn standard_information_is_24_bytes() {
        let bytes = encode_file_standard_information(&fake_info(), 1, false);
        assert_eq!(bytes.len(), 24);
    }

    #[test]
    fn standard_information_reports_links_and_delete_pending() {
        let bytes = encode_file_standard_information(&fake_info(), 3, false);
        assert_eq!(bytes[16..20], 3u32.to_le_bytes());
        assert_eq!(bytes[20], 0);
        assert_eq!(encode_file_standard_information(&fake_info(), 1, true)[20], 1);
        // No link left: the file is being deleted.
        assert_eq!(encode_file_standard_information(&fake_info(), 0, false)[20], 1);
    }

    #[test]
    fn network_open_information_is_56_bytes() {
        let bytes = encode_file_network_open_information(&fake_info());
        assert_eq!(bytes.len(), 56);
    }

    #[test]
    fn file_all_information_ends_with_the_path() {
        let bytes = encode_file_all_information(&fake_info(), 0x001F_01FF, 1, false, 0, 0, "\\");
        assert_eq!(bytes.len(), 102);
        // FileNameLength
        assert_eq!(bytes[96..100], 2u32.to_le_bytes());
    }

    #[test]
    fn dir_entry_name_offsets_match_the_encoders() {
        let entry = DirEntry { info: fake_info(), position: 0 };
        let name_len = utf16le(&entry.info.name).len();
        for class in [
            FILE_DIRECTORY_INFORMATION,
            FILE_FULL_DIRECTORY_INFORMATION,
            FILE_BOTH_DIRECTORY_INFORMATION,
            FILE_NAMES_INFORMATION,
            FILE_ID_BOTH_DIRECTORY_INFORMATION,
            FILE_ID_FULL_DIRECTORY_INFORMATION,
        ] {
            let offset = dir_entry_name_offset(class).unwrap();
            assert_eq!(encode_dir_entry(class, &entry).len(), offset + name_len);
        }
        assert_eq!(dir_entry_name_offset(0x3C), None);
    }

    #[test]
    fn sector_size_information_is_28_bytes() {
        let bytes = encode_fs_sector_size_information(4096);
        assert_eq!(bytes.len(), 28);
        assert_eq!(bytes[0..4], 4096u32.to_le_bytes());
    }
}
