//! What browsers send to the file view, and what is kept for them: forms, cookies, headers of
//! uploads, links, names of archives.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::files::{links, upload_ops, zip};
use crate::form::{Form, cookies, decoded};

/// A query or the body of a form. Nothing in it is longer than it was.
pub fn web_form(data: &[u8]) {
    for form in [Some(Form::read_leniently(data)), Form::read(data)].into_iter().flatten() {
        for name in ["name", "csrf", ""] {
            assert!(form.all(name).map(str::len).sum::<usize>() <= data.len());
            assert!(form.get(name).is_none() || form.has(name));
        }
    }
    assert!(decoded(data, false).len() <= data.len());
}

/// A header of cookies, and those of uploads with the same value.
pub fn web_cookies(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let mut headers = HeaderMap::new();
    for name in ["cookie", "upload-length", "upload-offset"] {
        headers.append(name, value.clone());
    }
    for name in ["upload-length", "upload-offset"] {
        let _ = upload_ops::number(&headers, HeaderName::from_static(name));
    }
    for cookie in cookies(&headers, "larder_session") {
        assert!(cookie.len() <= data.len() && !cookie.contains(';'));
    }
}

/// The file of links: what is read is written as it was.
pub fn web_links(data: &[u8]) {
    let Ok(found) = links::parse(data) else { return };
    let again = links::parse(links::print(&found).as_bytes());
    assert!(again.is_ok_and(|again| again == found));
}

/// A name for an archive: nothing in it leads up or to a root.
pub fn web_zip_name(data: &[u8]) {
    let name = zip::name_of(data);
    assert!(!name.starts_with('/') && !name.contains('\\') && name.split('/').all(|part| part != ".." && part != "."));
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    #[test]
    fn fuzz_web_form() {
        let seeds = ["name=a+b%20c&csrf=0f", "sort=size&down&page=2", "q=%c3%a4&&=%"];
        drive("web_form", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_form);
    }

    #[test]
    fn fuzz_web_cookies() {
        let seeds = ["larder_session=00ff; a=b", "larder_session=;larder_session==x; b"];
        drive("web_cookies", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_cookies);
    }

    #[test]
    fn fuzz_web_links() {
        let hash = "07".repeat(32);
        let password = format!("argon2id$19456$2$1${}${}", "ab".repeat(16), "cd".repeat(32));
        let lines = format!("larder links 1\n{hash} 1 2 - 616e6e 73\n{hash} -1 9 {password} 61 732f61\n");
        let now = format!("larder links 2\n{hash} 1 2 - 616e6e 73 1000 -\n{hash} -1 9 {password} 61 732f61 - 5\n");
        let seeds = [lines.into_bytes(), now.into_bytes(), b"larder links 2\n".to_vec()];
        drive("web_links", &seeds, super::web_links);
    }

    #[test]
    fn fuzz_web_zip_name() {
        let seeds = [&b"a/../b"[..], b"..\\x", b"/a//./\xff"];
        drive("web_zip_name", &seeds.map(<[u8]>::to_vec), super::web_zip_name);
    }
}
