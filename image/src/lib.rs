//! The image: root, initramfs, UKI, ESP, GPT disk and manifest, from files. No root, no loop device.
